"""Where a process spends its time, by file of anchorscope: py-spy looks at its stacks a hundred times a second."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

OTHER = "vLLM and others"


class Profile:
    """Stacks of one process, from now on until `shares` is called or `seconds` have passed."""

    def __init__(self, pid: int, seconds: int, out: Path) -> None:
        spy = shutil.which("py-spy")
        if spy is None:
            raise SystemExit("py-spy is missing. Type: pip install py-spy")
        self.out = out
        options = ["--pid", str(pid), "--duration", str(seconds), "--nonblocking", "--format", "raw"]
        where = ["--full-filenames", "--output", str(out)]
        self.process = subprocess.Popen([spy, "record", *options, *where], stdout=subprocess.DEVNULL)

    def shares(self) -> dict[str, float]:
        """Percentage of the busy time in each file of anchorscope, with what it calls, most first."""
        self.process.wait()
        counts = Counter[str]()
        for line in self.out.read_text(encoding="utf-8").splitlines():
            stack, _, samples = line.rpartition(" ")
            counts[_file(stack)] += int(samples)
        return {name: round(100 * count / counts.total(), 2) for name, count in counts.most_common()}


def _file(stack: str) -> str:
    """The innermost file of anchorscope on a stack; the worker's own file only calls vLLM's worker."""
    innermost = next((frame for frame in reversed(stack.split(";")) if "/anchorscope/" in frame), "")
    name = innermost.partition("/anchorscope/")[2].partition(":")[0]
    return name if name and name != "serve/worker.py" else OTHER
