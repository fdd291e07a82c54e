"""Clusters: samples that must not be split over folds, since one gives the other away.

Always together: the same question text, the same subject, the two questions of crossed answers, and near-duplicates
(the same first accepted answer, most words of the question the same, and no two subjects). Together as far as it goes:
the same accepted answer, the same given answer. Some of these are shared by a large part of a set ("yes",
"politician"), and through each other they would join nearly all samples; so they are joined from the rarest on, and a
join that would make a cluster larger than a twentieth of the samples is left out and counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

LARGEST = 0.05  # of the samples: a cluster made by answers alone is no larger
ALIKE = 0.6  # of the words of two questions together are in both: near-duplicates


@dataclass(frozen=True)
class Keys:
    """What may join one sample to others, each in a form in which equal things are equal."""

    question: str
    subject: str | None
    """Whom or what it is about."""
    accepted: str
    """Its first accepted answer."""
    given: str


@dataclass(frozen=True)
class Clusters:
    numbers: list[int]
    """(sample): of its cluster, counted from 0 in the order of the samples."""
    apart: dict[str, int]
    """For `accepted` and `given`: samples that share it with samples of other clusters all the same."""


class _Sets:
    """Disjoint sets of rows, and their sizes."""

    def __init__(self, rows: int) -> None:
        self._parent = list(range(rows))
        self.size = [1] * rows

    def root(self, row: int) -> int:
        while self._parent[row] != row:
            self._parent[row] = self._parent[self._parent[row]]
            row = self._parent[row]
        return row

    def join(self, rows: Iterable[int]) -> None:
        first, *others = dict.fromkeys(self.root(row) for row in rows)
        for other in others:
            self._parent[other] = first
            self.size[first] += self.size[other]

    def joined(self, rows: Iterable[int]) -> int:
        """How many rows would be together."""
        return sum(self.size[root] for root in {self.root(row) for row in rows})


def clusters_of(keys: Sequence[Keys], crossed: Iterable[Sequence[int]] = ()) -> Clusters:
    """Join what must be together, then what can be. `crossed`: rows of two questions with both of their answers."""
    sets = _Sets(len(keys))
    for rows in crossed:
        sets.join(rows)
    # 1. the same text, the same subject, near-duplicates
    for shared in (_sharing(sample.question for sample in keys), _sharing(sample.subject for sample in keys)):
        for rows in shared.values():
            sets.join(rows)
    accepted = _sharing(sample.accepted for sample in keys)
    words = [frozenset(sample.question.split()) for sample in keys]
    for rows in accepted.values():
        for one, other in combinations(rows, 2):
            # questions from one template differ by their subject alone, and that is no small difference
            subjects = {keys[one].subject, keys[other].subject} - {None}
            if len(subjects) < 2 and len(words[one] & words[other]) >= ALIKE * len(words[one] | words[other]):
                sets.join((one, other))
    # 2. the same answers, from the rarest on
    soft = {"accepted": accepted, "given": _sharing(sample.given for sample in keys)}
    most = max(1, int(LARGEST * len(keys)))
    ordered = sorted((len(rows), kind, key) for kind, shared in soft.items() for key, rows in shared.items())
    for _, kind, key in ordered:
        rows = soft[kind][key]
        if sets.joined(rows) <= most:
            sets.join(rows)
    apart = {
        kind: sum(len(rows) for rows in shared.values() if len({sets.root(row) for row in rows}) > 1)
        for kind, shared in soft.items()
    }
    numbers: dict[int, int] = {}
    return Clusters([numbers.setdefault(sets.root(row), len(numbers)) for row in range(len(keys))], apart)


def _sharing(keys: Iterable[str | None]) -> dict[str, list[int]]:
    rows: defaultdict[str, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        if key is not None:
            rows[key].append(row)
    return dict(rows)
