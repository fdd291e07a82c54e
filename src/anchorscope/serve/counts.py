"""The counts of a server's verdicts, for vLLM's /metrics and /anchorscope/status, and the audit log."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from anchorscope.detectors.record import Verdict
from anchorscope.serve.judge import ReadAnswer

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)  # seconds


class Counts:
    """Counts of one server process."""

    def __init__(self, audit: Path | None = None, texts: bool = False) -> None:
        self.verdicts: Counter[tuple[str, str]] = Counter()
        self.reasons: Counter[str] = Counter()
        self.seconds = 0.0
        self.scores: dict[str, tuple[int, float, float]] = {}
        self.started = time.time()
        self._texts = texts
        self._audit = audit.open("a", encoding="utf-8", buffering=1) if audit is not None else None
        self._metrics = _metrics()

    def add(self, detector: str, version: str, request: str, answer: ReadAnswer, verdict: Verdict, took: float) -> None:
        """Count a verdict, and log it."""
        self.verdicts[detector, verdict.decision] += 1
        if verdict.reason:
            self.reasons[_kind(verdict.reason)] += 1
        self.seconds += took
        if verdict.score is not None:
            count, total, squares = self.scores.get(detector, (0, 0.0, 0.0))
            self.scores[detector] = count + 1, total + verdict.score, squares + verdict.score**2
        if self._metrics is not None:
            decisions, seconds, scores = self._metrics
            decisions.labels(detector, verdict.decision).inc()
            seconds.observe(took)
            if verdict.score is not None:
                scores.labels(detector).observe(verdict.score)
        if self._audit is not None:
            line: dict[str, Any] = {
                "time": round(time.time(), 3),
                "request": request,
                "detector": detector,
                "version": version,
                **{k: v for k, v in verdict.record().items() if k not in ("schema", "route")},
            }
            if self._texts and answer.sample is not None:
                line |= {"question": answer.sample.question.question, "answer": answer.sample.answer.answer}
            self._audit.write(json.dumps(line, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """End the log."""
        if self._audit is not None:
            self._audit.close()

    def record(self) -> dict[str, Any]:
        """The counts for the server's status."""
        total = sum(self.verdicts.values())
        decisions: dict[str, dict[str, int]] = {}
        for (detector, decision), count in self.verdicts.items():
            decisions.setdefault(detector, {})[decision] = count
        means = {name: total_ / count for name, (count, total_, _) in self.scores.items()}
        return {
            "seconds_up": round(time.time() - self.started),
            "verdicts": decisions,
            "reasons": dict(self.reasons),
            "milliseconds_per_verdict": round(1e3 * self.seconds / total, 2) if total else None,
            "mean_score": {name: round(value, 3) for name, value in means.items()},
        }


def _kind(reason: str) -> str:
    """A reason without its numbers, so that there are few different ones."""
    return reason.split(":")[0][:80]


_made: list[Any] = []


def _metrics() -> Any:
    """The Prometheus counters, registered once per process, or None if the client is not installed."""
    if not _made:
        try:
            from prometheus_client import Counter as Total
            from prometheus_client import Histogram
        except ImportError:
            _made.append(None)
        else:
            _made.append(
                (
                    Total("anchorscope_verdicts", "Verdicts by detector and decision", ["detector", "decision"]),
                    Histogram("anchorscope_verdict_seconds", "Time of a verdict in the server", buckets=BUCKETS),
                    Histogram(
                        "anchorscope_score",
                        "Logit that the answer is wrong",
                        ["detector"],
                        buckets=[-4, -3, -2, -1, 0, 1, 2, 3, 4],
                    ),
                )
            )
    return _made[0]
