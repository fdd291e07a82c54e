"""How a stage reports its progress, without knowing who displays it."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

Advance = Callable[[int], None]
Progress = Callable[[str, int | None], AbstractContextManager[Advance]]
"""Opened with a title and a total (None if unknown). It gives a function to call with the number of new items done."""

EVERY = 30.0  # seconds between two lines where no bar can be drawn
RECENT, SEEN = 120.0, 1000  # seconds, and number of advances, from which the rate is computed
SOON = 1.0  # seconds after which a stage gets a line


def uncounted(count: int) -> None:
    """Count for nobody."""


@contextmanager
def counted(advance: Advance, total: int) -> Iterator[Advance]:
    """Count the items of one shard: at most `total`, though batches may be tried again, and all when it is done."""
    left = total

    def some(count: int) -> None:
        nonlocal left
        count = min(count, left)
        left -= count
        if count:
            advance(count)

    yield some
    some(left)


def in_parts(advance: Advance, parts: int) -> Advance:
    """Count items whose work has so many equal parts: called with the number of new parts that are done."""
    done = 0

    def some(count: int) -> None:
        nonlocal done
        before, done = done // parts, done + count
        advance(done // parts - before)

    return some


@contextmanager
def silent(title: str, total: int | None) -> Iterator[Advance]:
    """Show no progress."""
    yield uncounted


@contextmanager
def printed(title: str, total: int | None) -> Iterator[Advance]:
    """Print lines on stderr: one for each stage, one every half minute, and one when the stage ends."""
    with lines(title, total, told) as advance:
        yield advance


class Pace:
    """The number of items done, and the recent rate, from which the time left is computed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.done = 0
        self._clock, self._start = clock, clock()
        self._seen: deque[tuple[float, int]] = deque([(self._start, 0)])

    def advance(self, count: int) -> None:
        """Count items that are newly done."""
        self.done += count
        now = self._clock()
        self._seen.append((now, self.done))
        while len(self._seen) > 2 and (now - self._seen[1][0] > RECENT or len(self._seen) > SEEN):
            self._seen.popleft()

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._start

    @property
    def rate(self) -> float:
        """Items done per second recently. Waiting counts, so the rate falls if nothing advances."""
        (first, before), now = self._seen[0], self._clock()
        return (self.done - before) / (now - first) if now > first else 0.0


@contextmanager
def lines(title: str, total: int | None, say: Callable[[str], None], every: float = EVERY) -> Iterator[Advance]:
    """Report by lines: one for each stage, one at intervals with rate and time left, and one when the stage ends.

    A stage that ends within a second gets no line.
    """
    pace, stop = Pace(), threading.Event()

    def tell() -> None:  # by the clock, because users worry when nothing is printed for long
        if stop.wait(min(SOON, every)):
            return
        say(title + (f": {total:,}" if total else ""))
        while not stop.wait(every):
            say(f"{title}: {how_far(pace.done, total, pace.seconds, pace.rate)}")

    clock = threading.Thread(target=tell, daemon=True)
    clock.start()
    try:
        yield pace.advance
    finally:
        stop.set()
        clock.join()
    taken = pace.seconds
    if taken >= SOON:
        say(f"{title}: done in {taken:,.0f} s")


def how_far(done: int, total: int | None, seconds: float, rate: float | None = None) -> str:
    """`300 of 800, 12/s, 0:00:41 left`, or before anything is done, the time waited so far.

    `rate`: recent number of items per second (default: the mean over the whole time).
    """
    if not done:
        waited = f"waiting for the first of {total:,}, " if total else ""
        return f"{waited}{seconds:,.0f} s so far"
    rate = (done / seconds if seconds > 0 else 0.0) if rate is None else rate
    text = f"{done:,}" + (f" of {total:,}" if total else "")
    if rate > 0:
        text += f", {_rate(rate)}"
        if total and total > done:
            text += f", {timedelta(seconds=round((total - done) / rate))} left"
    return text


def _rate(rate: float) -> str:
    """A rate per second, or per minute or hour where that would be a number near zero."""
    if rate >= 10:
        return f"{rate:,.0f}/s"
    unit, seconds = next(((unit, n) for unit, n in (("s", 1), ("min", 60)) if rate * n >= 0.1), ("h", 3600))
    return f"{rate * seconds:.1f}/{unit}"


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide the progress bars of other libraries, which use tqdm, because anchorscope shows its own."""
    from tqdm.std import tqdm

    drawn: Callable[..., None] = tqdm.__init__

    def silently(self: Any, *args: Any, **options: Any) -> None:
        drawn(self, *args, **{**options, "disable": True})

    tqdm.__init__ = silently
    try:
        yield
    finally:
        tqdm.__init__ = drawn


Notice = Callable[[str], None]
"""Called with a warning for the user while a stage runs."""


def nobody(text: str) -> None:
    """Ignore a warning."""


def told(text: str) -> None:
    """Print a warning on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
