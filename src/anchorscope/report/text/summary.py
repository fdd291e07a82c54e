"""What a run shows, in a few sentences computed from its numbers and its ledger.

First comes what is told within a question, then the chart, its null, and what needs no groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from anchorscope.evidence.record import POOLED, ClaimVerdict
from anchorscope.evidence.tables import GAPS, LOSSES
from anchorscope.pathways.headline import Number
from anchorscope.pathways.record import Key
from anchorscope.report.text.lines import counted, plain

_FLIP = Key("delta_p", "knockout", "layer")
KEYS = {
    "Q": _FLIP._replace(group="Q"),
    "A": _FLIP._replace(group="A"),
    "gap": GAPS["knockout"],
    "gap permuted": GAPS["permutation null"],
    "gap beyond": GAPS["difference"],
    "loss": LOSSES["knockout"],
    "loss beyond": LOSSES["difference"],
}


def sentences(
    curves: Iterable[tuple[Key, NDArray[np.float64]]], verdicts: Sequence[ClaimVerdict] | None = None
) -> list[str]:
    """What a run shows, in words chosen by its numbers. `curves`: those of its models and datasets at one read point.

    Each curve is a key and its numbers, (value, low, high, …; layer). `verdicts`: those of its ledger, if any.
    """
    lines: dict[str, list[list[Number]]] = {name: [] for name in KEYS}
    names = {key: name for name, key in KEYS.items()}
    for key, numbers in curves:
        if key in names:
            lines[names[key]].append([Number(value, low, high, None) for value, low, high in numbers[:3].T])
    parts = [truth(verdicts or ()), _picture(lines["Q"], lines["A"])]
    parts.append(_null(*(_middle(lines[name]) for name in ("gap", "gap permuted", "gap beyond"))))
    parts.append(_ranking(*(_middle(lines[name]) for name in ("loss", "loss beyond"))))
    return [part for part in parts if part]


_TRUTH = {
    "within_signal": "Among several answers to one question, where the question's difficulty cannot help, the "
    "probe ranks right answers above wrong ones in {}.",
    "within_question": "Part of that signal comes from the question's words in {}.",
    "within_strings": "Right answers look different as strings, with the question removed, in {}.",
    "within_adds": "The probe adds to scores that need none, such as log-probabilities and length, in {}.",
}


def truth(verdicts: Sequence[ClaimVerdict]) -> str:
    """What the ledger says about several answers to one question; empty without a ledger."""
    told = []
    for claim, words in _TRUTH.items():
        mine = [row for row in verdicts if row.claim == claim and row.value is not None and row.model != POOLED]
        if mine:
            told.append(words.format(verdict_counts(mine)))
    return " ".join(told)


OTHERS = {"there is one": "of unknown size in", "does not hold": "not in", "cannot tell": "cannot tell in"}
"""How verdicts other than *holds* are told beside it."""


def verdict_counts(verdicts: Sequence[ClaimVerdict]) -> str:
    """`3 of 8 model–set pairs (of unknown size in 1, not in 3, cannot tell in 1)`."""
    counts = Counter(row.verdict for row in verdicts)
    beside = [f"{words} {counts[answer]}" for answer, words in OTHERS.items() if counts[answer]]
    rest = f" ({', '.join(beside)})" if beside else ""
    return f"{counts['holds']} of {len(verdicts)} model–set pair{'' if len(verdicts) == 1 else 's'}{rest}"


def _middle(lines: Sequence[list[Number]]) -> list[Number]:
    """The value of each curve at the middle layer, which was fixed in advance; curves without a value are left out."""
    rows = [rows[round((len(rows) - 1) / 2)] for rows in lines]
    return [row for row in rows if not np.isnan(row.value)]


def _values(rows: Sequence[Number]) -> list[float]:
    return [row.value for row in rows if not np.isnan(row.value)]


def _between(values: Sequence[float], digits: int) -> str:
    """`−12 to −60`, the one nearest to zero first."""
    ends = sorted({f"{end:.{digits}f}" for end in (min(values), max(values))}, key=lambda end: abs(float(end)))
    return " to ".join(map(plain, ends))


def _picture(q: Sequence[list[Number]], a: Sequence[list[Number]]) -> str:
    if not q:
        return "No dataset has enough Q-Anchored answers for a line, so the published chart cannot be drawn."
    lowest = [min(_values(rows)) for rows in q]
    still = [value for rows in a for value in _values(rows)]
    head = (
        "When attention to the question's key tokens is cut, answers on which the probe's prediction flips (Q-Anchored)"
        f" lose {_between([-low for low in lowest], 0)} points of probability at the layer where their line is lowest"
    )
    rest = f"; the others (A-Anchored) stay between {plain(f'{min(still):.0f}')} and {plain(f'{max(still):.0f}')}"
    return head + (rest if still else "") + "."


def _null(gap: Sequence[Number], permuted: Sequence[Number], beyond: Sequence[Number]) -> str:
    if not gap or not permuted or not beyond:
        return (
            "When separate halves of the probes sort and measure, the groups are too small to tell whether that gap is "
            "larger than under the permutation null."
        )
    return (
        f"When separate halves of the probes sort and measure, that gap is {_between(_values(gap), 0)} points at the "
        f"middle layer. It is {_between(_values(permuted), 0)} points when each answer receives the shift of another "
        f"answer (the permutation null). The gap {_exceeds(beyond)}."
    )


def _ranking(loss: Sequence[Number], beyond: Sequence[Number]) -> str:
    if not loss:
        return ""
    head = (
        "Without any groups, the cut changes how well the probe ranks right above wrong answers by "
        f"{_between(_values(loss), 3)} of AUROC at the middle layer"
    )
    if not beyond:
        return head + "."
    return f"{head}. The loss {_exceeds(beyond)}."


def _exceeds(rows: Sequence[Number]) -> str:
    """`exceeds the null in three of eight model–set pairs`: where the whole interval lies below zero."""
    below = sum(row.high is not None and row.high < 0 for row in rows)
    if len(rows) == 1:
        verb = "exceeds" if below else "does not exceed"
        return f"{verb} this null in the one model–set pair measured, by its 95 % interval"
    pairs = counted(len(rows), "model–set pair")
    of = (
        f"none of {pairs}"
        if below == 0
        else f"all {pairs}"
        if below == len(rows)
        else f"{counted(below, '')[:-1]} of {pairs}"
    )
    return f"exceeds this null in {of}, by its 95 % interval"
