"""Registries of things that a study chooses by name, one for each kind, with suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from anchorscope.errors import StudyError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """The names of one kind that can be chosen, and the object behind each."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Register an object under a name. Use it as a decorator."""

        def add(thing: T) -> T:
            self._add(name, thing)
            return thing

        return add

    def _add(self, name: str, thing: T) -> None:
        if name in self._entries:
            raise StudyError(f"a {self.kind} '{name}' exists already", "Register it under another name.")
        self._entries[name] = thing

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise StudyError(f"there is no {self.kind} '{name}'", did_you_mean(name, self._entries))
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)
