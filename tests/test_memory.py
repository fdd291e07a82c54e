from __future__ import annotations

import ctypes
import os
import sys

import pytest

from anchorscope import memory


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """The C library is looked at once; each test wants its own."""
    memory._trim.cache_clear()
    yield
    monkeypatch.undo()
    memory._trim.cache_clear()


class Library:
    """glibc, as far as it matters here."""

    def __init__(self) -> None:
        self.trimmed: list[int] = []

    def malloc_trim(self, pad: int) -> int:
        self.trimmed.append(pad)
        return 1


def test_memory_is_given_back_all_of_it(monkeypatch):
    library = Library()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    memory.give_back()
    memory.give_back()
    assert library.trimmed == [0, 0]


def test_without_malloc_trim_nothing_happens(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())  # musl
    memory.give_back()


def test_another_system_is_not_asked(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", None)
    memory.give_back()


@pytest.mark.parametrize("name", ["ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"])
def test_kernels_are_bounded_unless_the_user_said_how_many(monkeypatch, name):
    monkeypatch.setenv(name, "7")
    memory.bound_kernels()
    assert os.environ[name] == "7"
    monkeypatch.delenv(name)
    memory.bound_kernels()
    assert os.environ[name] == memory.KERNELS
