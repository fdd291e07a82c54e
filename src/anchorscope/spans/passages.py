"""Sentences of a passage, and which of them hold an answer. Everything is decided on characters."""

from __future__ import annotations

import re
from collections.abc import Iterable

from anchorscope.spans.alignment import Range
from anchorscope.spans.words import sentence_end

_CLOSED = re.compile(r"[.!?][\"”’']?\s+")


def sentences(text: str) -> list[Range]:
    """The sentences of a passage, without gaps: white space belongs to the one before it. A line end ends one."""
    found: list[Range] = []
    start = 0
    for line in text.splitlines(keepends=True):
        end = start + len(line)
        while start < end:
            stop = sentence_end(text, start, end)
            closed = _CLOSED.match(text, stop, end)
            stop = closed.end() if closed else end
            found.append((start, stop))
            start = stop
    return found


def holding(text: str, answers: Iterable[str]) -> list[Range]:
    """The sentences in which one of the answers stands, as whole words, in any case."""
    wanted = [r"\s+".join(map(re.escape, answer.split())) for answer in answers if answer.strip()]
    if not wanted:
        return []
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(wanted)})(?!\w)", re.IGNORECASE)
    places = [match.span() for match in pattern.finditer(text)]
    return [(start, end) for start, end in sentences(text) if any(a < end and b > start for a, b in places)]
