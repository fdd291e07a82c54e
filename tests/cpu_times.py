"""Which tests take the processor's time: `pytest -p cpu_times` writes CPU seconds by test to $CPU_TIMES, slowest first.

Time of processes that a test starts and waits for counts; what Ray starts does not, as nobody waits for it.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

SECONDS: dict[str, float] = {}
OUT = Path(os.environ.get("CPU_TIMES", "cpu-times.json"))


def used() -> float:
    """CPU seconds of this process and of those it has waited for."""
    return sum(
        part.ru_utime + part.ru_stime
        for part in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = used()
    result = yield
    SECONDS[item.nodeid] = used() - before
    return result


def pytest_sessionfinish() -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if SECONDS:
        ranked = dict(sorted(SECONDS.items(), key=lambda each: -each[1]))
        OUT.with_suffix(f".{worker}.json").write_text(json.dumps({"process": used(), "tests": ranked}, indent=1))
