"""Tokens chosen by hand: by their place, or by what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anchorscope.errors import ModelError, printable
from anchorscope.spans.alignment import Range

Marks = str | int | Sequence[str | int]
"""Tokens by their place in the sequence (negative from its end), by a text that they say, or several of these."""


@dataclass(frozen=True)
class ByHand:
    """Exact tokens that a person marked, instead of the rules."""

    question: Marks | None = None
    """Of the question; negative places count from its end."""
    answer: Marks | None = None
    """Of the answer; negative places count from its end."""


def marked_tokens(marks: Marks, text: str, ranges: Sequence[Range] | None, tokens: range, what: str) -> list[int]:
    """The tokens that are marked, ascending, all of them among `tokens`.

    `ranges` are the characters of `text` that each token of the whole sequence touches; None where that is not known,
    and tokens can be given by their places only. A text must stand in `text` exactly once.
    """
    chosen: set[int] = set()
    each_mark = [marks] if isinstance(marks, (str, int)) else marks
    for mark in each_mark:
        if isinstance(mark, int):
            chosen.add(_placed(mark, tokens, what))
        else:
            chosen.update(_saying(mark, text, ranges, tokens, what))
    if not chosen:
        raise ModelError(f"{what}: no token is marked", "Give a piece of its text, or the indices of tokens.")
    return sorted(chosen)


def _placed(mark: int, tokens: range, what: str) -> int:
    place = mark if mark >= 0 else tokens.stop + mark
    if place not in tokens:
        raise ModelError(f"{what}: there is no token {mark}; the indices are {tokens.start} to {tokens.stop - 1}")
    return place


def _saying(mark: str, text: str, ranges: Sequence[Range] | None, tokens: range, what: str) -> list[int]:
    quoted = printable(mark, 40)
    if ranges is None:
        raise ModelError(
            f"{what}: the tokenizer changes the text, so '{quoted}' cannot be found",
            "Give the indices of tokens instead.",
        )
    times = text.count(mark) if mark.strip() else 0
    if times != 1:
        how = "does not stand in it" if times == 0 else f"stands in it {times} times"
        raise ModelError(f"{what}: '{quoted}' {how}", "Give a longer text that occurs once, or the indices of tokens.")
    start = text.index(mark)
    end = start + len(mark)
    return [token for token in tokens if ranges[token][0] < end and ranges[token][1] > start]
