"""Things that a study chooses by name: one typed registry for each kind of them, with "did you mean"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from anchorscope.errors import StudyError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """What of one kind can be chosen: names, and what each stands for."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Make something known under a name; to be used as a decorator."""

        def add(thing: T) -> T:
            self._add(name, thing)
            return thing

        return add

    def _add(self, name: str, thing: T) -> None:
        if name in self._entries:
            raise StudyError(f"there already is a {self.kind} '{name}'", "Register it under another name.")
        self._entries[name] = thing

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise StudyError(f"there is no {self.kind} '{name}'", did_you_mean(name, self._entries))
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)
