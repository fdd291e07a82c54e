"""How a stage tells how far it is, without knowing who listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Advance = Callable[[int], None]
Progress = Callable[[str, int | None], AbstractContextManager[Advance]]
"""Opened with a title and a total (None: unknown); gives a function that is told how many more are done."""


@contextmanager
def silent(title: str, total: int | None) -> Iterator[Advance]:
    """Tell nobody."""
    yield lambda count: None


Notice = Callable[[str], None]
"""Told what a person should know while a stage goes on."""


def nobody(text: str) -> None:
    """Tell nobody."""
