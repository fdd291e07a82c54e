"""CPU seconds of a command with everything that it starts, also of processes that outlive it (as Ray's do)."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def cpu_of(words: Sequence[str], folder: Path, limit: float = 3600) -> tuple[int, float, float, str]:
    """Exit code, CPU seconds, seconds by the clock, and what was printed.

    On Linux this process adopts the orphans of the command and waits for them, so that their time counts too.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before, start = _used(), time.perf_counter()
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
    wall = time.perf_counter() - start
    with suppress(ChildProcessError):
        while os.wait():
            pass
    return done.returncode, round(_used() - before, 1), round(wall, 1), done.stdout


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
