"""The numbers a person asks for first, one line per model and dataset, taken from the `pathways` table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from anchorscope.pathways import Statistic

FIELDS = ("condition", "split", "anchor", "correction", "group", "stratum", "statistic")


class Numbers:
    """The rows of one model and dataset, by what they are."""

    def __init__(self, rows: Iterable[Statistic]) -> None:
        self._rows: dict[tuple[str, ...], list[Statistic]] = {}
        for row in rows:
            self._rows.setdefault(tuple(getattr(row, name) for name in FIELDS), []).append(row)

    def line(
        self,
        statistic: str,
        condition: str = "knockout",
        split: str = "none",
        anchor: str = "none",
        correction: str = "none",
        group: str = "all",
        stratum: str = "all",
    ) -> list[Statistic]:
        """The rows of one statistic, by layer; those without a value left out."""
        rows = self._rows.get((condition, split, anchor, correction, group, stratum, statistic), [])
        return sorted((row for row in rows if row.value is not None), key=lambda row: row.layer)


@dataclass(frozen=True)
class Headline:
    """One model on one dataset."""

    model: str
    dataset: str
    n: int
    right: int
    numbers: dict[str, Any]
    """Name → [value, low, high] or [value, low, high, layer]; None where a group is too small."""


def headline(model: str, dataset: str, rows: Iterable[Statistic], samples: int, right: int) -> Headline:
    """Read the first numbers off the table.

    The lowest layer of a curve is chosen by its value: its interval is not corrected for that choice.
    """
    numbers = Numbers(rows)
    auroc = max(numbers.line("auroc", "clean"), key=_value, default=None)
    at = auroc.layer if auroc else -1
    question = max(numbers.line("auroc_question_only", "clean"), key=_value, default=None)
    lowest = min(numbers.line("delta_auroc"), key=_value, default=None)
    found: dict[str, Any] = {
        "auroc": _triple(auroc),
        "auroc_question_only": _triple(question),
        "auroc_text_only": _triple(_at(numbers.line("auroc_text_only", "clean"), -1)),
        "auroc_within_relation": _triple(_at(numbers.line("auroc_within_relation", "clean"), at)),
        "delta_auroc_lowest": _triple(lowest),
    }
    for condition in ("matched_question", "control_question", "matched_question-control_question"):
        line = numbers.line("delta_auroc", condition)
        found[f"delta_auroc_{condition}"] = _triple(_at(line, lowest.layer if lowest else -1))
    found["published"] = _curves(numbers, split="layer")
    found["anchor"] = _curves(numbers, split="anchor", anchor="best")
    found["halves"] = _curves(numbers, split="anchor_half", anchor="best")
    found["halves_by_layer"] = _curves(numbers, split="layer_half")
    found["halves_drift"] = _curves(numbers, split="anchor_half", anchor="best", correction="drift")
    for stratum in ("predicted_correct", "predicted_wrong", "label_correct", "label_wrong"):
        found[f"halves_{stratum}"] = _curves(numbers, split="anchor_half", anchor="best", stratum=stratum)
    for pair in ("matched_question-control_question", "matched_random-control_random"):
        line = numbers.line("delta_p", pair, "anchor_half", "best", group="Q")
        found[f"placebo_{pair.rsplit('_', 1)[1]}"] = _triple(min(line, key=_value, default=None))
    found["kappa"] = _triple(_at(numbers.line("kappa", split="anchor_half", anchor="best"), -1))
    return Headline(model, dataset, samples, right, found)


def _at(line: list[Statistic], layer: int) -> Statistic | None:
    """The row of one layer."""
    return next((row for row in line if row.layer == layer), None)


def _curves(numbers: Numbers, **where: str) -> dict[str, Any]:
    """Share of Q, the lowest ΔP of Q and its layer, A there, their difference there, and the range of A."""
    lines = {group: numbers.line("delta_p", group=group, **where) for group in ("Q", "A", "Q-A")}
    lowest = min(lines["Q"], key=_value, default=None)
    layer = lowest.layer if lowest else -1
    at = {group: _triple(_at(line, layer)) for group, line in lines.items()}
    values = [_value(row) for row in lines["A"]]
    shares = numbers.line("share", group="Q", **where)
    return {
        "share_q": _triple(_at(shares, layer) or _at(shares, -1)),
        "q_lowest": at["Q"],
        "a_there": at["A"],
        "q_minus_a": at["Q-A"],
        "a_range": [round(min(values), 1), round(max(values), 1)] if values else None,
    }


def _value(row: Statistic) -> float:
    assert row.value is not None
    return row.value


def _triple(row: Statistic | None) -> list[float] | None:
    """Value, low, high, and the layer where there is one."""
    if row is None:
        return None
    digits = 1 if row.statistic.startswith("delta_p") else 3
    numbers = [round(x, digits) for x in (row.value, row.low, row.high) if x is not None]
    return [*numbers, row.layer] if row.layer >= 0 else numbers
