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


def headline(model: str, dataset: str, rows: Iterable[Statistic], right: int) -> Headline:
    """Read the first numbers off the table.

    The lowest layer of a curve is chosen by its value: its interval is not corrected for that choice.
    """
    numbers = Numbers(rows)
    auroc = numbers.line("auroc", "clean")
    best = max(auroc, key=_value)
    found: dict[str, Any] = {"auroc": _triple(best)}
    questions = numbers.line("auroc_question_only", "clean")
    found["auroc_question_only"] = _triple(max(questions, key=_value)) if questions else None
    for name in ("auroc_text_only", "auroc_within_relation"):
        line = [row for row in numbers.line(name, "clean") if row.layer in (-1, best.layer)]
        found[name] = _triple(line[0]) if line else None
    changes = numbers.line("delta_auroc")
    found["delta_auroc_lowest"] = _triple(min(changes, key=_value)) if changes else None
    controls = [row for row in numbers.line("delta_auroc", "control_question") if row.layer == found_layer(changes)]
    found["delta_auroc_control"] = _triple(controls[0]) if controls else None
    found["published"] = _curves(numbers, split="layer")
    found["anchor"] = _curves(numbers, split="anchor", anchor="best")
    found["halves"] = _curves(numbers, split="anchor_half", anchor="best")
    found["halves_by_layer"] = _curves(numbers, split="layer_half")
    found["halves_drift"] = _curves(numbers, split="anchor_half", anchor="best", correction="drift")
    for stratum in ("predicted_correct", "predicted_wrong", "label_correct", "label_wrong"):
        found[f"halves_{stratum}"] = _curves(numbers, split="anchor_half", anchor="best", stratum=stratum)
    for pair in ("matched_question-control_question", "matched_random-control_random"):
        line = numbers.line("delta_p", pair, "anchor_half", "best", group="Q")
        found[f"placebo_{pair.rsplit('_', 1)[1]}"] = _triple(min(line, key=_value)) if line else None
    kappa = numbers.line("kappa", split="anchor_half", anchor="best")
    found["kappa"] = _triple(kappa[0]) if kappa else None
    return Headline(model, dataset, best.n, right, found)


def found_layer(line: list[Statistic]) -> int:
    """The layer at which a curve is lowest; −1 without one."""
    return min(line, key=_value).layer if line else -1


def _curves(numbers: Numbers, **where: str) -> dict[str, Any]:
    """Share of Q, the lowest ΔP of Q and its layer, A there, their difference there, and the range of A."""
    lines = {group: numbers.line("delta_p", group=group, **where) for group in ("Q", "A", "Q-A")}
    share = numbers.line("share", group="Q", **where)
    layer = found_layer(lines["Q"])
    at = {group: next((_triple(row) for row in line if row.layer == layer), None) for group, line in lines.items()}
    values = [_value(row) for row in lines["A"]]
    shares = [row for row in share if row.layer in (-1, layer)]
    return {
        "share_q": _triple(shares[0]) if shares else None,
        "q_lowest": at["Q"],
        "a_there": at["A"],
        "q_minus_a": at["Q-A"],
        "a_range": [round(min(values), 1), round(max(values), 1)] if values else None,
    }


def _value(row: Statistic) -> float:
    assert row.value is not None
    return row.value


def _triple(row: Statistic) -> list[float]:
    """Value, low, high, and the layer where there is one."""
    digits = 1 if row.statistic.startswith("delta_p") else 3
    numbers = [round(x, digits) for x in (row.value, row.low, row.high) if x is not None]
    return [*numbers, row.layer] if row.layer >= 0 else numbers
