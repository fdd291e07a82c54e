"""Which questions of a set are used: a seeded draw by question id, in one pass and little memory.

Each id gets a number, its draw, that depends on the seed and the id alone. A sample of n is the n questions with
the smallest draws. So it does not depend on the order of the file or on the other rows, and a larger sample
contains the smaller one. Eight bytes a question are held while choosing: 8 MB for a million.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


def draw(question_id: str, seed: int) -> int:
    """The question's place in the draw: uniform in [0, 2**64), a function of id and seed alone."""
    key = seed.to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(question_id.encode(), digest_size=8, key=key).digest(), "big")


@dataclass(frozen=True)
class Choice:
    available: int
    """Questions there were to choose from."""
    size: int
    cutoff: int
    """A question is chosen when its draw is at most this."""
    repeated: int | None
    """A draw that came twice, so two rows have one id; None when all ids are unique."""


def choose(draws: Iterable[int], sample: int | None) -> Choice:
    """Choose the `sample` smallest draws, or all."""
    held = array("Q", draws)
    ordered = np.asarray(held, dtype=np.uint64)
    ordered.sort()
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    repeated = int(ordered[same[0]]) if len(same) else None
    size = len(ordered) if sample is None else min(sample, len(ordered))
    return Choice(len(ordered), size, int(ordered[size - 1]) if size else 0, repeated)
