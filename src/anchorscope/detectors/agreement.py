"""Sampled agreement: does the model say the same again? By the grader's own rules for what says the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anchorscope.grades.grading import Grader


def same(grade: Grader, question: str, one: str, other: str) -> bool:
    """Whether two answers to a question say the same: each would be right if the other were the accepted one."""
    if " ".join(one.casefold().split()) == " ".join(other.casefold().split()):
        return True
    if not one.strip() or not other.strip():
        return False
    return any(grade(a, [b], question).judgement == "right" for a, b in ((one, other), (other, one)))


def agreement(grade: Grader, question: str, greedy: str, drawn: Sequence[str]) -> tuple[float, float]:
    """The share of drawn answers that say what the greedy one says; and the entropy (natural) over what all say.

    Answers are put one by one to the first group whose first member says the same, the greedy one first.
    """
    groups: list[list[str]] = []
    for text in (greedy, *drawn):
        for group in groups:
            if same(grade, question, group[0], text):
                group.append(text)
                break
        else:
            groups.append([text])
    sizes = np.array([len(group) for group in groups], dtype=np.float64)
    shares = sizes / sizes.sum()
    return (len(groups[0]) - 1) / max(1, len(drawn)), float(-(shares * np.log(shares)).sum())
