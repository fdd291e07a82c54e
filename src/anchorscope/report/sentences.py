"""Three sentences on what a run shows, computed from its numbers: the picture, its null, and what needs no groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anchorscope.pathways.lookup import Numbers, collect, read_pathways
from anchorscope.pathways.record import Key, Statistic
from anchorscope.report.words import counted, plain
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint

_FLIP = Key("delta_p", "knockout", "layer")
_GAP = Key("delta_p", "knockout", "anchor_half", "half", group="Q-A")
_LOSS = Key("delta_auroc", "knockout")
_KEYS = {
    "Q": _FLIP._replace(group="Q"),
    "A": _FLIP._replace(group="A"),
    "gap": _GAP,
    "gap permuted": _GAP._replace(condition="permuted"),
    "gap beyond": _GAP._replace(condition="knockout-permuted"),
    "loss": _LOSS,
    "loss beyond": _LOSS._replace(condition="knockout-permuted"),
}


def sentences(store: Store, point: ReadPoint) -> list[str]:
    """What a run shows, in words that its own numbers choose."""
    models, datasets = [m.name for m in store.study.models], [d.name for d in store.study.datasets]
    numbers = collect(read_pathways(store, point), set(_KEYS.values()), models, datasets, point)
    lines = {name: list(_lines(numbers, key, models, datasets)) for name, key in _KEYS.items()}
    said = [_picture(lines["Q"], lines["A"])]
    said.append(_null(*(_middle(lines[name]) for name in ("gap", "gap permuted", "gap beyond"))))
    said.append(_ranking(*(_middle(lines[name]) for name in ("loss", "loss beyond"))))
    return [each for each in said if each]


def _lines(numbers: Numbers, key: Key, models: Sequence[str], datasets: Sequence[str]) -> Iterator[list[Statistic]]:
    """The curves of all cells that have one: the rows that have a value."""
    for model in models:
        for dataset in datasets:
            rows = numbers.of(key, model, dataset)
            if any(row.value is not None for row in rows):
                yield rows


def _middle(lines: Sequence[list[Statistic]]) -> list[Statistic]:
    """Of each curve the layer half-way up, which was fixed in advance; those without a value there are left out."""
    rows = [rows[round((len(rows) - 1) / 2)] for rows in lines]
    return [row for row in rows if row.value is not None]


def _values(rows: Sequence[Statistic]) -> list[float]:
    return [row.value for row in rows if row.value is not None]


def _between(values: Sequence[float], digits: int) -> str:
    """`−12 to −60`, the one nearest to zero first."""
    ends = sorted({f"{each:.{digits}f}" for each in (min(values), max(values))}, key=lambda each: abs(float(each)))
    return " to ".join(map(plain, ends))


def _picture(q: Sequence[list[Statistic]], a: Sequence[list[Statistic]]) -> str:
    if not q:
        return "No set has enough Q-Anchored answers for a line: the published picture cannot be drawn."
    lowest = [min(_values(rows)) for rows in q]
    still = [value for rows in a for value in _values(rows)]
    said = (
        "With attention to the question's key tokens cut, answers on which the probe's verdict flips (Q-Anchored) lose "
        f"{_between([-each for each in lowest], 0)} points of ΔP at their lowest layer"
    )
    rest = f"; the others (A-Anchored) stay between {plain(f'{min(still):.0f}')} and {plain(f'{max(still):.0f}')}"
    return said + (rest if still else "") + "."


def _null(gap: Sequence[Statistic], permuted: Sequence[Statistic], beyond: Sequence[Statistic]) -> str:
    if not gap or not permuted or not beyond:
        return "Whether that gap is more than another answer's shift would make cannot be told: groups are too small."
    return (
        f"Sorted and measured by separate halves, half-way up, that gap is {_between(_values(gap), 0)} points, and "
        f"{_between(_values(permuted), 0)} when each answer gets another answer's shift: the cut goes beyond "
        f"this null in {_below(beyond)}."
    )


def _ranking(loss: Sequence[Statistic], beyond: Sequence[Statistic]) -> str:
    if not loss:
        return ""
    said = (
        "Without any groups, the cut changes how well the probe ranks right above wrong answers by "
        f"{_between(_values(loss), 3)} of AUROC half-way up"
    )
    if not beyond:
        return said + "."
    return f"{said}; it costs more than another answer's shift in {_below(beyond)}."


def _below(rows: Sequence[Statistic]) -> str:
    """`three of eight cells`: where the whole interval lies below zero."""
    below = sum(row.high is not None and row.high < 0 for row in rows)
    of = counted(len(rows), "cell")
    return (
        f"none of {of}" if below == 0 else f"all {of}" if below == len(rows) else f"{counted(below, '')[:-1]} of {of}"
    )
