from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anchorscope.models import heap as memory


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """The C library is looked at once; each test wants its own."""
    memory._library.cache_clear()
    yield
    monkeypatch.undo()
    memory._library.cache_clear()


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


PAGES = """
import resource, torch
from anchorscope.models.heap import give_back, hold_heap

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(4_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

hold_heap()
print(pages(), pages())
give_back()
print(pages())
"""


HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(memory._library("mallopt") is None, reason="glibc only")
@pytest.mark.skipif(HUGE.exists() and "[always]" in HUGE.read_text(), reason="pages are huge: too few to count")
@pytest.mark.parametrize("theirs", [False, True])
def test_the_heap_is_held_until_it_is_given_back(theirs):
    """Pages that the system had to bring: 4,000 make up one such tensor."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    if theirs:
        environment["MALLOC_MMAP_THRESHOLD_"] = "1000000"
    done = subprocess.run([sys.executable, "-c", PAGES], env=environment, capture_output=True, text=True, check=True)
    first, again, after = map(int, done.stdout.split())
    if theirs:  # their limit holds: each tensor anew
        assert min(first, again, after) > 20 * 3000
    else:
        assert again < 1000
        assert 3000 < after < 2 * 4500


@pytest.mark.parametrize("name", ["ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"])
def test_kernels_are_bounded_unless_the_user_said_how_many(monkeypatch, name):
    monkeypatch.setenv(name, "7")
    memory.bound_kernels()
    assert os.environ[name] == "7"
    monkeypatch.delenv(name)
    memory.bound_kernels()
    assert os.environ[name] == memory.KERNELS
