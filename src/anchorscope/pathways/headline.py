"""The numbers a person asks for first, one line per model and dataset, taken from the `numbers` table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anchorscope.pathways.lookup import ChartNumbers, collect, measured, read_lines
from anchorscope.pathways.record import Group, Key, Origin, Statistic
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import TRACES

GROUPS_SHOWN: tuple[Group, ...] = ("Q", "A", "Q-A")
MATCHED = "matched_question-control_question"
SPLITS: dict[str, Key] = {
    "published": Key("delta_p", "knockout", "layer"),
    "anchor": Key("delta_p", "knockout", "anchor", "best"),
    "halves": Key("delta_p", "knockout", "anchor_half", "best"),
    "halves_drift": Key("delta_p", "knockout", "anchor_half", "best", "drift"),
} | {
    f"halves_{stratum}": Key("delta_p", "knockout", "anchor_half", "best", stratum=stratum)
    for stratum in ("predicted_correct", "predicted_wrong", "label_correct", "label_wrong")
}
"""The curves that are summed up, each with its groups Q, A and Q-A."""
LINES: dict[str, Key] = {
    "auroc": Key("auroc", "clean"),
    "auroc_question_only": Key("auroc_question_only", "clean"),
    "auroc_text_only": Key("auroc_text_only", "clean"),
    "auroc_within_relation": Key("auroc_within_relation", "clean"),
    "delta_auroc": Key("delta_auroc", "knockout"),
    "delta_auroc_beyond_permuted": Key("delta_auroc", "knockout-permuted"),
    "delta_auroc_lowest": Key("delta_auroc", "knockout"),
    "delta_auroc_matched_question": Key("delta_auroc", "matched_question"),
    "delta_auroc_control_question": Key("delta_auroc", "control_question"),
    f"delta_auroc_{MATCHED}": Key("delta_auroc", MATCHED),
    "placebo_question": Key("delta_p", MATCHED, "anchor_half", "best", group="Q"),
    "placebo_random": Key("delta_p", "matched_random-control_random", "anchor_half", "best", group="Q"),
    "kappa": Key("kappa", "knockout", "anchor_half", "best"),
}
"""The lines that one number each is taken from."""
KEYS = {
    *LINES.values(),
    *(split._replace(group=group) for split in SPLITS.values() for group in GROUPS_SHOWN),
    *(split._replace(group="Q", statistic="share") for split in SPLITS.values()),
}
"""Keys of all numbers that headlines read."""


class Number(NamedTuple):
    """A number of the table."""

    value: float
    """In the unit of its statistic."""
    low: float | None
    """Lower end of its 95 % interval."""
    high: float | None
    """Upper end."""
    layer: int | None
    """Of which layer; None where it belongs to none."""

    @classmethod
    def of(cls, row: Statistic | None) -> Number | None:
        """The number of a row; None where there is no row or a group was too small."""
        if row is None or row.value is None:
            return None
        return cls(row.value, row.low, row.high, row.layer if row.layer >= 0 else None)


class Curves(NamedTuple):
    """One split: ΔP of Q where it is lowest, and what stands there."""

    share_q: Number | None
    """Of Q-Anchored answers."""
    q_lowest: Number | None
    """ΔP of Q at its lowest layer, which is chosen by its value: the interval is not corrected for that."""
    a_there: Number | None
    """ΔP of A at that layer."""
    q_minus_a: Number | None
    """Their difference there."""
    a_range: tuple[float, float] | None
    """Lowest and highest ΔP of A over all layers."""


@dataclass(frozen=True)
class Headline:
    """One model on one dataset."""

    model: str
    """As the study calls it."""
    dataset: str
    """Likewise."""
    n: int
    """Samples that were traced."""
    right: int
    """How many of them are right."""
    numbers: dict[str, Number | None]
    """By the names of LINES; None where a group is too small."""
    curves: dict[str, Curves]
    """By the names of SPLITS."""


def headlines(store: Store, point: ReadPoint) -> Iterator[Headline]:
    """The first numbers of every model and dataset of a run that has pathways."""
    for origin, cell in measured(store, point):
        grades = [row.correct for row in cell.table(TRACES)]
        rows = (row for line in read_lines(cell, point, replicates=False).values() for row in line.rows(origin))
        yield headline(origin, rows, len(grades), sum(grades))


def headline(origin: Origin, rows: Iterable[Statistic], samples: int, right: int) -> Headline:
    """Read the first numbers off the table."""
    table = collect(rows, KEYS, [origin.model], [origin.dataset], origin.point)
    lines = {name: _line(table, origin, key) for name, key in LINES.items()}
    best, lowest = _best(lines["auroc"]), _lowest(lines["delta_auroc_lowest"])
    taken = {
        "auroc": best,
        "auroc_question_only": _best(lines["auroc_question_only"]),
        "auroc_text_only": _at(lines["auroc_text_only"], -1),
        "auroc_within_relation": _at(lines["auroc_within_relation"], best.layer if best else -1),
        "delta_auroc_lowest": lowest,
        "placebo_question": _lowest(lines["placebo_question"]),
        "placebo_random": _lowest(lines["placebo_random"]),
        "kappa": _at(lines["kappa"], -1),
    }
    middle = round((len(lines["auroc"]) - 1) / 2)  # fixed in advance: the anchor `half`
    for name in ("delta_auroc", "delta_auroc_beyond_permuted"):
        taken[name] = _at(lines[name], middle)
    for name in ("matched_question", "control_question", MATCHED):  # at the knockout's lowest layer
        taken[f"delta_auroc_{name}"] = _at(lines[f"delta_auroc_{name}"], lowest.layer if lowest else -1)
    return Headline(
        origin.model,
        origin.dataset,
        samples,
        right,
        {name: Number.of(taken[name]) for name in LINES},
        {name: _curves(table, origin, split) for name, split in SPLITS.items()},
    )


def _line(table: ChartNumbers, origin: Origin, key: Key) -> list[Statistic]:
    """The rows of a line that have a value."""
    return [row for row in table.of(key, origin.model, origin.dataset) if row.value is not None]


def _curves(table: ChartNumbers, origin: Origin, split: Key) -> Curves:
    """Share of Q, the lowest ΔP of Q and its layer, A there, their difference there, and the range of A."""
    q, a, gap = (_line(table, origin, split._replace(group=group)) for group in ("Q", "A", "Q-A"))
    shares = _line(table, origin, split._replace(group="Q", statistic="share"))
    lowest = _lowest(q)
    layer = lowest.layer if lowest else -1
    values = [_value(row) for row in a]
    return Curves(
        Number.of(_at(shares, layer) or _at(shares, -1)),
        Number.of(lowest),
        Number.of(_at(a, layer)),
        Number.of(_at(gap, layer)),
        (min(values), max(values)) if values else None,
    )


def _at(line: Sequence[Statistic], layer: int) -> Statistic | None:
    """The row of one layer."""
    return next((row for row in line if row.layer == layer), None)


def _best(line: Sequence[Statistic]) -> Statistic | None:
    return max(line, key=_value, default=None)


def _lowest(line: Sequence[Statistic]) -> Statistic | None:
    return min(line, key=_value, default=None)


def _value(row: Statistic) -> float:
    assert row.value is not None
    return row.value
