"""How a stage tells how far it is, without knowing who listens."""

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
"""Opened with a title and a total (None: unknown); gives a function that is told how many more are done."""

EVERY = 30.0  # seconds between two lines where nothing can be drawn over
RECENT, SEEN = 120.0, 1000  # seconds, and advances, that the rate is taken from
SOON = 1.0  # seconds after which a stage is worth a line


@contextmanager
def silent(title: str, total: int | None) -> Iterator[Advance]:
    """Tell nobody."""
    yield lambda count: None


@contextmanager
def printed(title: str, total: int | None) -> Iterator[Advance]:
    """Tell by lines on stderr: one for each stage, one every half minute, one when it ends."""
    with lines(title, total, told) as advance:
        yield advance


class Pace:
    """How much is done, and how fast of late: the time left is told by the last minutes, not by the whole stage."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.done = 0
        self._clock, self._start = clock, clock()
        self._seen: deque[tuple[float, int]] = deque([(self._start, 0)])

    def advance(self, count: int) -> None:
        """So many more are done."""
        self.done += count
        now = self._clock()
        self._seen.append((now, self.done))
        while len(self._seen) > 2 and (now - self._seen[1][0] > RECENT or len(self._seen) > SEEN):
            self._seen.popleft()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock() - self._start

    @property
    def rate(self) -> float:
        """Done per second, of late. Waiting counts: what does not advance gets slower."""
        (first, before), now = self._seen[0], self._clock()
        return (self.done - before) / (now - first) if now > first else 0.0


@contextmanager
def lines(title: str, total: int | None, say: Callable[[str], None], every: float = EVERY) -> Iterator[Advance]:
    """Tell by lines: one for each stage, one every so often with rate and time left, one when it ends.

    Of a stage that is over in a second nothing is said.
    """
    pace, stop = Pace(), threading.Event()

    def tell() -> None:  # by the clock, not by what is done: silence is what worries people
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
    """`300 of 800, 12/s, 0:00:41 left`; before anything is done, what is waited for.

    `rate`: done per second of late; by default of the whole time.
    """
    if not done:
        waited = f"waiting for the first of {total:,}, " if total else ""
        return f"{waited}{seconds:,.0f} s so far"
    rate = (done / seconds if seconds > 0 else 0.0) if rate is None else rate
    text = f"{done:,}" + (f" of {total:,}" if total else "")
    if rate > 0:
        text += f", {rate:,.0f}/s" if rate >= 10 else f", {rate:.1f}/s"
        if total and total > done:
            text += f", {timedelta(seconds=round((total - done) / rate))} left"
    return text


@contextmanager
def without_bars() -> Iterator[None]:
    """No progress bars of other libraries meanwhile (they draw with tqdm): ours say what is waited for."""
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
"""Told what a person should know while a stage goes on."""


def nobody(text: str) -> None:
    """Tell nobody."""


def told(text: str) -> None:
    """Tell on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
