"""How well a score separates wrong answers from right ones, in every resample, with p-values.

A score is higher the likelier the answer is *wrong*. `weights` (row, sample) says how often each answer counts: row 0
the data as they are, the others resamples. Numbers that depend on how many answers are wrong (AUPRC, AUARC, PRR, ECE,
Brier, risk at a coverage) are at the natural share if each weight is also divided by the probability that the answer
was sampled. AUROC and the rates come out the same with or without, as long as that probability is one per class.

A row that lacks what a measure needs is nan: both classes for AUROC, AUPRC, the rates and PRR, any answer for others.
Answers with the same score stand or fall together, or, where only a part of them is passed, in random order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from anchorscope.evidence import ledger
from anchorscope.pathways.intervals import Estimate, FloatArray, centred, estimate

K = TypeVar("K", bound=Hashable)
Bools = NDArray[np.bool_]
Measure = Callable[[FloatArray, FloatArray], FloatArray]
"""From the weight of the wrong and of the right answers up to each step, (step, row) each, to (row,) or more."""

ENTRIES = 2**18  # of one table at a time: 2 MB, so that a few of them fit into the processor's cache
ROUNDING = 1e-9  # sums of weights are equal if they are this near to each other, relatively


def auprc(scores: FloatArray, wrong: Bools, weights: FloatArray) -> FloatArray:
    """Average precision of flagging wrong answers: precision at each threshold, weighted by the recall it adds."""

    def area(caught: FloatArray, flagged: FloatArray) -> FloatArray:
        precision = np.nan_to_num(_ratio(caught, caught + flagged))  # before the first weight there is none to add
        added = np.einsum("ij,ij->j", _each(caught), precision)
        return _with_both(_ratio(added, caught[-1]), caught, flagged)

    return _stepwise(area, scores, wrong, weights, suspicious_first=True)


def fpr_at_tpr(scores: FloatArray, wrong: Bools, weights: FloatArray, tpr: float = 0.95) -> FloatArray:
    """Share of right answers that are flagged at the threshold that catches at least `tpr` of the wrong ones."""
    _within("tpr", [tpr])

    def rate(caught: FloatArray, flagged: FloatArray) -> FloatArray:
        enough = caught >= tpr * caught[-1] * (1 - ROUNDING)
        at = enough.argmax(axis=0)  # the first
        return _with_both(_ratio(flagged[at, np.arange(len(at))], flagged[-1]), caught, flagged)

    return _stepwise(rate, scores, wrong, weights, suspicious_first=True)


def tpr_at_fpr(scores: FloatArray, wrong: Bools, weights: FloatArray, fpr: float = 0.01) -> FloatArray:
    """Share of wrong answers that are caught while at most `fpr` of the right ones are flagged. It may be 0."""
    _within("fpr", [fpr])

    def rate(caught: FloatArray, flagged: FloatArray) -> FloatArray:
        few = flagged <= fpr * flagged[-1] * (1 + ROUNDING)
        most = np.where(few, caught, 0).max(axis=0)
        return _with_both(_ratio(most, caught[-1]), caught, flagged)

    return _stepwise(rate, scores, wrong, weights, suspicious_first=True)


def auarc(scores: FloatArray, wrong: Bools, weights: FloatArray) -> FloatArray:
    """Area under the accuracy-rejection curve: accuracy of the least suspicious answers, mean over coverages in (0, 1].

    Coverage is continuous: an answer of weight 2 is passed little by little, as two of weight 1 with its score are. So
    the area depends neither on the unit of the weights nor on how they are split. At random it is the accuracy.
    """

    def area(missed: FloatArray, kept: FloatArray) -> FloatArray:
        return _accuracy(missed, kept) + _gained(missed, kept)

    return _stepwise(area, scores, wrong, weights, suspicious_first=False)


def prr(scores: FloatArray, wrong: Bools, weights: FloatArray) -> FloatArray:
    """Prediction rejection ratio: AUARC on a scale from random order (0) to all right answers first (1)."""

    def ratio(missed: FloatArray, kept: FloatArray) -> FloatArray:
        accuracy = _accuracy(missed, kept)
        mixed = (accuracy > 0) & (accuracy < 1)
        # Right ones first: accuracy a is kept at 1 up to coverage a, and falls as a / coverage after it.
        best = -accuracy * np.log(accuracy, out=np.zeros_like(accuracy), where=mixed)
        return _ratio(_gained(missed, kept), best)

    return _stepwise(ratio, scores, wrong, weights, suspicious_first=False)


def risk_coverage(
    scores: FloatArray,
    wrong: Bools,
    weights: FloatArray,
    coverages: Sequence[float] | FloatArray,
    base_rate: float | None = None,
) -> FloatArray:
    """(row, coverage): share of wrong answers among those passed, least suspicious first.

    With a base rate, both classes are weighted so that this share of all answers is wrong, in every row.
    """
    covered = np.asarray(coverages, np.float64)
    _within("coverage", covered)
    if not (covered > 0).all():
        raise ValueError("at coverage 0 nothing is passed, and no share of it is wrong")
    if base_rate is not None:
        _within("base rate", [base_rate])

    def risk(missed: FloatArray, kept: FloatArray) -> FloatArray:
        if base_rate is not None:
            missed, kept = (
                _with_both(_ratio(share * up_to, up_to[-1]), missed, kept)
                for share, up_to in ((base_rate, missed), (1 - base_rate, kept))
            )
        total = missed + kept
        sizes = covered[:, None] * total[-1]
        whole = [(total < size * (1 - ROUNDING)).sum(axis=0) for size in sizes]  # steps that pass as a whole
        last = np.minimum(whole, len(total) - 1), np.arange(total.shape[1])  # the step of which a part passes
        left = (total[last] - sizes) * _ratio(_each(missed)[last], _each(total)[last])
        return _ratio(missed[last] - left, sizes).T

    return _stepwise(risk, scores, wrong, weights, suspicious_first=False)


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


def paired(a: FloatArray, b: FloatArray, widened: float = 1.0) -> Estimate:
    """Difference a − b. Row i of both must come from the same resample."""
    return estimate(a - b, widened)


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


def _before(up_to: FloatArray) -> FloatArray:
    """Sum up to the step before each."""
    return np.vstack([np.zeros((1, up_to.shape[1])), up_to[:-1]])


def _each(up_to: FloatArray) -> FloatArray:
    """Amount that each step adds to the sum."""
    return up_to - _before(up_to)


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Quotient of the two, or nan where the denominator is 0."""
    quotient: FloatArray = np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)
    return quotient


def _with_both(values: FloatArray, wrong: FloatArray, right: FloatArray) -> FloatArray:
    """Values of rows with both wrong and right answers, else nan."""
    return np.where((wrong[-1] > 0) & (right[-1] > 0), values, np.nan)


def _accuracy(missed: FloatArray, kept: FloatArray) -> FloatArray:
    return _ratio(kept[-1], missed[-1] + kept[-1])


def _gained(missed: FloatArray, kept: FloatArray) -> FloatArray:
    """AUARC minus accuracy, exact because the kept weight grows linearly within a step.

    From weight T to T + w with share s of right ones, accuracy at t is (R + s (t - T)) / t. Its integral is
    s w + (R - s T) log(1 + w / T); the first terms of all steps add up to the accuracy.
    """
    total = missed + kept
    width, start = _each(total), _before(total)
    share = np.divide(_each(kept), width, out=np.zeros_like(width), where=width > 0)
    longer = np.log1p(np.divide(width, start, out=np.zeros_like(width), where=start > 0))
    return _ratio(np.einsum("ij,ij->j", _before(kept) - share * start, longer), total[-1])


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
