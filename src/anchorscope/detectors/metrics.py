"""How well a score separates wrong answers from right ones, in every resample, with p-values.

A score is higher the likelier the answer is *wrong*. `weights` (row, sample) says how often each answer counts: row 0
the data as they are, the others resamples. ECE and Brier score depend on how many answers are wrong: they are at the
natural share if each weight is also divided by the probability that the answer was sampled. The other measures come out
the same with or without, as long as that probability is one per class.

A row that lacks what a measure needs is nan: both classes for rates and errors, any answer for ECE and Brier score.
Answers with the same score stand or fall together, or, where only a part of them is passed, in random order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from anchorscope.evidence import ledger
from anchorscope.pathways.intervals import FloatArray, centred

K = TypeVar("K", bound=Hashable)
Bools = NDArray[np.bool_]
Measure = Callable[[FloatArray, FloatArray], FloatArray]
"""From the weight of the wrong and of the right answers up to each step, (step, row) each, to (row,)."""

ENTRIES = 2**18  # of one table at a time: 2 MB, so that a few of them fit into the processor's cache
ROUNDING = 1e-9  # sums of weights are equal if they are this near to each other, relatively


def fpr_at_tpr(scores: FloatArray, wrong: Bools, weights: FloatArray, tpr: float = 0.95) -> FloatArray:
    """Share of right answers that are flagged at the threshold that catches at least `tpr` of the wrong ones."""
    _within("tpr", [tpr])

    def rate(caught: FloatArray, flagged: FloatArray) -> FloatArray:
        enough = caught >= tpr * caught[-1] * (1 - ROUNDING)
        at = enough.argmax(axis=0)  # the first
        return _with_both(_ratio(flagged[at, np.arange(len(at))], flagged[-1]), caught, flagged)

    return _stepwise(rate, scores, wrong, weights, suspicious_first=True)


def errors_among_passed(
    scores: FloatArray, wrong: Bools, weights: FloatArray, coverage: float, base_rate: float
) -> FloatArray:
    """Share of wrong answers among the least suspicious, of which `coverage` (0 to 1) is passed.

    Both classes are weighted so that `base_rate` of all answers are wrong, in every row.
    """
    _within("coverage", [coverage])
    _within("base rate", [base_rate])
    if not coverage > 0:
        raise ValueError("at coverage 0 nothing is passed, and no share of it is wrong")

    def errors(missed: FloatArray, kept: FloatArray) -> FloatArray:
        missed, kept = (
            _with_both(_ratio(share * up_to, up_to[-1]), missed, kept)
            for share, up_to in ((base_rate, missed), (1 - base_rate, kept))
        )
        total = missed + kept
        size = coverage * total[-1]
        whole = (total < size * (1 - ROUNDING)).sum(axis=0)  # steps that pass as a whole
        last = np.minimum(whole, len(total) - 1), np.arange(total.shape[1])  # the step of which a part passes
        left = (total[last] - size) * _ratio(_each(missed)[last], _each(total)[last])
        return _ratio(missed[last] - left, size)

    return _stepwise(errors, scores, wrong, weights, suspicious_first=False)


def ece(p_wrong: FloatArray, wrong: Bools, weights: FloatArray, bins: int = 10) -> FloatArray:
    """Expected calibration error: distance of the probability from the share of wrong answers, mean over answers.

    Bins have the same weight in row 0, as nearly as answers with the same probability, which share a bin, allow; and
    they stay the same in all rows.
    """
    _within("p_wrong", p_wrong)
    _check(p_wrong, wrong, weights)
    order, ends = _order(p_wrong)
    up_to = np.cumsum(weights[0, order], dtype=np.float64)[ends]
    middle = (up_to + np.append(0, up_to[:-1])) / 2
    place = np.minimum(middle * bins / (up_to[-1] or 1), bins - 1).astype(np.intp)
    in_bin = np.repeat(place, np.diff(ends, prepend=-1))
    apart = np.zeros((len(order), bins))
    apart[order, in_bin] = (p_wrong.astype(np.float64) - wrong)[order]
    return _ratio(np.abs(_summed(weights, apart)).sum(axis=1), weights.sum(axis=1, dtype=np.float64))


def brier(p_wrong: FloatArray, wrong: Bools, weights: FloatArray) -> FloatArray:
    """Brier score: mean squared error of the probability."""
    _within("p_wrong", p_wrong)
    _check(p_wrong, wrong, weights)
    square = np.square(p_wrong.astype(np.float64) - wrong)
    return _ratio(_summed(weights, square), weights.sum(axis=1, dtype=np.float64))


def p_value(difference: FloatArray, widened: float = 1.0) -> float:
    """Two-sided p-value: how often resamples of a difference lie as far from their mean as its value lies from 0.

    Never below 1 / (1 + resamples): with many comparisons, draw enough of them. nan where the value is undefined.
    """
    value = float(difference[0])
    if not np.isfinite(value):
        return float("nan")
    away = centred(difference[:, None], widened)[:, 0] - value
    away = away[np.isfinite(away)]
    as_far = np.abs(away) >= abs(value) * (1 - ROUNDING) - 1e-12
    return (1 + int(as_far.sum())) / (1 + len(away))


def holm(p_values: Mapping[K, float]) -> dict[K, float]:
    """Holm's adjusted p-values. Undefined ones stay nan and are not counted."""
    known = {key: p for key, p in p_values.items() if np.isfinite(p)}
    adjusted = dict(zip(known, ledger.holm(list(known.values())), strict=True))
    return {key: adjusted.get(key, float("nan")) for key in p_values}


def average_over_cells(replicates: Sequence[FloatArray]) -> FloatArray:
    """Mean over several cells, row by row, or nan if any cell is undefined, so that all means cover the same cells.

    Right if resamples of the cells are drawn independently (another seed each), or are of the same clusters.
    """
    mean: FloatArray = np.mean(np.stack(replicates), axis=0, dtype=np.float64)
    return mean


def _stepwise(
    measure: Measure, scores: FloatArray, wrong: Bools, weights: FloatArray, suspicious_first: bool
) -> FloatArray:
    """Go through the answers by score, one step per distinct score, and measure some rows at a time."""
    _check(scores, wrong, weights)
    order, ends = _order(scores, descending=suspicious_first)
    is_wrong = wrong[order, None].astype(np.float64)
    done = []
    for rows in _chunks(weights):
        ordered = np.ascontiguousarray(weights[rows].T, np.float64)[order]
        of_wrong, of_right = (np.cumsum(ordered * member, axis=0) for member in (is_wrong, 1 - is_wrong))
        if len(ends) < len(order):
            of_wrong, of_right = of_wrong[ends], of_right[ends]
        done.append(measure(of_wrong, of_right))
    return np.concatenate(done)


def _order(scores: FloatArray, descending: bool = False) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Order of the samples by score, and the last place of each score in it."""
    order = np.argsort(scores, kind="stable")
    if descending:
        order = order[::-1]
    ordered = scores[order]
    return order, np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))


def _chunks(weights: FloatArray) -> Iterator[slice]:
    rows = max(1, ENTRIES // weights.shape[1])
    return (slice(start, start + rows) for start in range(0, len(weights), rows))


def _summed(weights: FloatArray, values: FloatArray) -> FloatArray:
    """Product of the two in float64."""
    return np.concatenate([weights[rows].astype(np.float64) @ values for rows in _chunks(weights)])


def _each(up_to: FloatArray) -> FloatArray:
    """Amount that each step adds to the sum."""
    return np.diff(up_to, axis=0, prepend=0)


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Quotient of the two, or nan where the denominator is 0."""
    quotient: FloatArray = np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)
    return quotient


def _with_both(values: FloatArray, wrong: FloatArray, right: FloatArray) -> FloatArray:
    """Values of rows with both wrong and right answers, else nan."""
    return np.where((wrong[-1] > 0) & (right[-1] > 0), values, np.nan)


def _check(scores: FloatArray, wrong: Bools, weights: FloatArray) -> None:
    if not (scores.ndim == 1 and len(scores) and scores.shape == wrong.shape and weights.shape[1:] == scores.shape):
        shapes = f"scores {scores.shape}, wrong {wrong.shape} and weights {weights.shape}"
        raise ValueError(f"{shapes} do not fit: they should be (sample,), (sample,) and (row, sample)")
    if wrong.dtype != np.bool_:
        raise ValueError(f"wrong should be true or false, not {wrong.dtype}")
    if not len(weights) or not (weights >= 0).all():
        raise ValueError("weights should have a row, and none of them should be negative or undefined")
    if np.isnan(scores).any():
        raise ValueError(f"{int(np.isnan(scores).sum())} scores are undefined (nan)")


def _within(name: str, values: Sequence[float] | FloatArray) -> None:
    """Check that shares lie between 0 and 1."""
    given = np.asarray(values)
    if not ((given >= 0) & (given <= 1)).all():
        raise ValueError(f"{name} should be between 0 and 1")
