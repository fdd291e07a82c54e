"""How a stage tells how far it is, without knowing who listens."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta

Advance = Callable[[int], None]
Progress = Callable[[str, int | None], AbstractContextManager[Advance]]
"""Opened with a title and a total (None: unknown); gives a function that is told how many more are done."""

EVERY = 30.0  # seconds between two lines where nothing can be drawn over
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


@contextmanager
def lines(title: str, total: int | None, say: Callable[[str], None], every: float = EVERY) -> Iterator[Advance]:
    """Tell by lines: one for each stage, one every so often with rate and time left, one when it ends.

    Of a stage that is over in a second nothing is said.
    """
    start, stop = time.monotonic(), threading.Event()
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count

    def tell() -> None:  # by the clock, not by what is done: silence is what worries people
        if stop.wait(min(SOON, every)):
            return
        say(title + (f": {total:,}" if total else ""))
        while not stop.wait(every):
            say(f"{title}: {how_far(done, total, time.monotonic() - start)}")

    clock = threading.Thread(target=tell, daemon=True)
    clock.start()
    try:
        yield advance
    finally:
        stop.set()
        clock.join()
    taken = time.monotonic() - start
    if taken >= SOON:
        say(f"{title}: done in {taken:,.0f} s")


def how_far(done: int, total: int | None, seconds: float) -> str:
    """`300 of 800, 12/s, 0:00:41 left`; `after 30 s` where nothing is counted."""
    if not done:
        return f"after {seconds:,.0f} s"
    rate = done / seconds if seconds > 0 else 0.0
    text = f"{done:,}" + (f" of {total:,}" if total else "")
    if rate > 0:
        text += f", {rate:,.0f}/s" if rate >= 10 else f", {rate:.1f}/s"
        if total and total > done:
            text += f", {timedelta(seconds=round((total - done) / rate))} left"
    return text


Notice = Callable[[str], None]
"""Told what a person should know while a stage goes on."""


def nobody(text: str) -> None:
    """Tell nobody."""


def told(text: str) -> None:
    """Tell on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
