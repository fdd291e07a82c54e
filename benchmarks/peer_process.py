"""Another tool in a process of its own: what the benchmark asks it, and how long it took."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from cases import Case

from anchorscope.study.terms import Into


class Server:
    """A peer that waits for requests. Cases for it are written to `work`."""

    def __init__(self, python: str, work: Path, tool: str, model: Path, dtype: str) -> None:
        self.work = work
        command = [python, str(Path(__file__).with_name("peer_server.py")), tool]
        self.process = subprocess.Popen(
            [*command, str(model), dtype],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._read()
        self.files = 0

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the peer ended; run benchmarks/peer_server.py by hand to see why")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def write(self, cases: list[Case], into: Into) -> Path:
        """A file of cases."""
        self.files += 1
        path = self.work / f"cases-{self.files}.json"
        content = []
        for case in cases:
            cut = case.cut(into)
            pairs = [list(pair) for pair in zip(cut.keys, cut.first_queries, strict=True)]
            content.append({"ids": case.ids, "cuts": pairs, "read": case.read})
        path.write_text(json.dumps(content))
        return path

    def ask(self, what: str, form: str, cases: Path, batch: int, out: Path | None = None) -> float:
        """Have it work through the cases; seconds."""
        request = {"what": what, "form": form, "cases": str(cases), "batch": batch, "out": str(out) if out else None}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return float(self._read()["seconds"])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)
