"""The counts of a server's verdicts, for vLLM's /metrics and /anchorscope/status, and whatever else hears of a verdict.

Nothing that a client wrote is a key of a count: reasons are counted by their codes.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Any, Literal

from anchorscope.serve.audit import AuditLog
from anchorscope.serve.telemetry import telemetry
from anchorscope.spans.samples import Sample

log = logging.getLogger("vllm.anchorscope")
Incident = Literal["off", "refused", "unreadable", "verdict failed", "count failed", "reload failed"]
"""What is counted beside verdicts: answers that a client wanted unjudged, requests that were refused, responses or
events that could not be read, and failures."""
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)  # seconds


class Counts:
    """Counts of one server process."""

    def __init__(self, audit: AuditLog | None = None, texts: bool = False) -> None:
        """`texts`: whether the audit log also has questions and answers."""
        self.verdicts: Counter[tuple[str, str]] = Counter()
        self.reasons: Counter[str] = Counter()
        self.incidents: Counter[Incident] = Counter()
        self.seconds = 0.0
        self.scores: dict[str, tuple[int, float]] = {}
        self.started = time.time()
        self.audit = audit
        self._texts = texts
        self._metrics = _metrics()
        self._telemetry = telemetry()

    def add(self, request: str, record: dict[str, Any], sample: Sample | None = None, took: float = 0.0) -> None:
        """Count a verdict, and log it as it is served. It never raises: a failure here must not cost the verdict."""
        try:
            self._add(request, record, sample, took)
        except Exception:
            self.incidents["count failed"] += 1
            log.exception("anchorscope: a verdict could not be counted")

    def note(self, incident: Incident, request: str = "") -> None:
        """Count something other than a verdict. An answer that leaves unjudged on request is logged too."""
        self.incidents[incident] += 1
        if incident == "off" and self.audit is not None:
            self.audit.put({"time": round(time.time(), 3), "request": request, "decision": "off"})

    def _add(self, request: str, record: dict[str, Any], sample: Sample | None, took: float) -> None:
        detector, decision, score = record["detector"] or "none", record["decision"], record["score"]
        self.verdicts[detector, decision] += 1
        if record["code"]:
            self.reasons[record["code"]] += 1
        self.seconds += took
        if score is not None:
            count, total = self.scores.get(detector, (0, 0.0))
            self.scores[detector] = count + 1, total + score
        if self._metrics is not None:
            decisions, seconds, scores = self._metrics
            decisions.labels(detector, decision).inc()
            seconds.observe(took)
            if score is not None:
                scores.labels(detector).observe(score)
        if self.audit is not None:
            line = {"time": round(time.time(), 3), "request": request, **record}
            if self._texts and sample is not None:
                line |= {"question": sample.question.question, "answer": sample.answer.answer}
            self.audit.put(line)
        if self._telemetry is not None:  # last: the SDK is not ours
            self._telemetry.put(record, took)

    def close(self) -> None:
        if self.audit is not None:
            self.audit.close()

    def record(self) -> dict[str, Any]:
        """The counts for the server's status."""
        total = sum(self.verdicts.values())
        decisions: dict[str, dict[str, int]] = {}
        for (detector, decision), count in self.verdicts.items():
            decisions.setdefault(detector, {})[decision] = count
        means = {name: total_ / count for name, (count, total_) in self.scores.items()}
        return {
            "seconds_up": round(time.time() - self.started),
            "verdicts": decisions,
            "reasons": dict(self.reasons),
            "incidents": {**self.incidents, "audit failed": self.audit.failed if self.audit is not None else 0},
            "milliseconds_per_verdict": round(1e3 * self.seconds / total, 2) if total else None,
            "mean_score": {name: round(value, 3) for name, value in means.items()},
        }


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
