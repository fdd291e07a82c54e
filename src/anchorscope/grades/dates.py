"""Dates among words, in any order of their parts, and whether two of them can be the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from anchorscope.grades.fold import Word


class Date(NamedTuple):
    """A date of which the month or the day may be missing, and the words [first, last] it was read from."""

    year: int | None
    """Four digits."""
    month: int | None
    """From 1."""
    day: int | None
    """From 1."""
    first: int
    """The number of the first word of it."""
    last: int
    """The number of the last word of it."""

    def agrees(self, other: Date) -> bool:
        """Whether no part that both have differs, and what both have says which date it is."""
        pairs = [(a, b) for a, b in zip(self[:3], other[:3], strict=True) if a is not None and b is not None]
        both_years = self.year is not None and other.year is not None
        return all(a == b for a, b in pairs) and (both_years or len(pairs) == 2)

    @property
    def precision(self) -> int:
        """How many of year, month and day are known."""
        return sum(part is not None for part in self[:3])


_MONTH_LINE = "january february march april may june july august september october november december"
_MONTH_NAMES = _MONTH_LINE.split()
_MONTHS = (
    {w: i for i, w in enumerate(_MONTH_NAMES, 1)} | {w[:3]: i for i, w in enumerate(_MONTH_NAMES, 1)} | {"sept": 9}
)
_DAY = re.compile(r"(0?[1-9]|[12][0-9]|3[01])(?:th)?")
_YEAR = re.compile(r"1[0-9]{3}|20[0-9]{2}")


def dates(words: Sequence[Word], text: str) -> list[Date]:
    """The dates among the words, in any order of their parts; 10/09/2001 is given both ways."""
    out: list[Date] = []
    at = 0
    while at < len(words):
        here = _numeric_dates(words, at, text) or _written_date(words, at)
        out += here
        at = here[0].last + 1 if here else at + 1
    return out


def _written_date(words: Sequence[Word], at: int) -> list[Date]:
    texts = [w.text for w in words[at : at + 4]] + [""] * 4
    month, day, used = _MONTHS.get(texts[0]), None, 1
    if month and (match := _DAY.fullmatch(texts[1])):
        day, used = int(match[1]), 2
    elif not month and (match := _DAY.fullmatch(texts[0])):
        of = texts[1] == "of"
        month, day, used = _MONTHS.get(texts[1 + of]), int(match[1]), 2 + of
        if not month:
            return []
    if month:
        year = int(texts[used]) if _YEAR.fullmatch(texts[used]) else None
        used += year is not None
        return [Date(year, month, day, at, at + used - 1)] if used > 1 else []
    return [Date(int(texts[0]), None, None, at, at)] if _YEAR.fullmatch(texts[0]) else []


def _numeric_dates(words: Sequence[Word], at: int, text: str) -> list[Date]:
    three = words[at : at + 3]
    if len(three) < 3 or not three[0].text[0].isdigit():
        return []
    if any(text[a.end : b.start] not in ("/", "-", ".") for a, b in pairwise(three)):
        return []
    a, b, c = (w.text for w in three)
    if _YEAR.fullmatch(a):
        a, b, c = b, c, a
        both = False
    else:
        both = True
    if not (_YEAR.fullmatch(c) and a.isdecimal() and b.isdecimal() and len(a) < 3 and len(b) < 3):
        return []
    ways = {(int(a), int(b)), (int(b), int(a))} if both else {(int(a), int(b))}
    return [Date(int(c), m, d, at, at + 2) for m, d in sorted(ways) if 1 <= m <= 12 and 1 <= d <= 31]
