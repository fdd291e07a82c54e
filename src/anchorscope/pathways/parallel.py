"""Work that is done side by side in threads, in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def side_by_side(work: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """What the work makes of each item, in order: as many at a time as there are cores, and few ahead."""
    threads = cores()
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[B]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def cores() -> int:
    """As many threads as this process may have: those it was given, or all cores."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get("OMP_NUM_THREADS", "")
    return min(there, int(given)) if given.isdigit() and int(given) > 0 else there
