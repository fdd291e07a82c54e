"""Support: the log-probability that the answer loses when the question is cut, and how much of the effect it explains.

The signal that the knockout removes is how much more the read-outs of right answers fall than those of wrong ones. If
support explained it all, right and wrong answers of equal support would fall alike. So they are compared within tenths
of support.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from anchorscope.evidence.claim import Claim, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.lines import BoolArray, IntArray, LineName, bins_of, line, weighted_mean
from anchorscope.evidence.record import EvidenceLine
from anchorscope.pathways.intervals import FloatArray, Resamples
from anchorscope.study.terms import SUPPORTED

TENTHS = 10


def support_lines(
    labels: BoolArray, clean: FloatArray, knockout: FloatArray, support: Mapping[str, FloatArray], drawn: Resamples
) -> Iterator[EvidenceLine]:
    """The mean loss by condition, and the signal lost, in all and at equal support.

    `clean` and `knockout` (sample): read-outs at one layer. `support`, by condition, (sample): log-probability.
    """
    n, weights = len(labels), drawn.samples
    for name, values in support.items():
        if name != "clean":
            yield line("support", "loss", weighted_mean(support["clean"] - values, weights), n, name)
    fall = (clean - knockout) / clean.std()
    loss = support["clean"] - support["knockout"]
    yield line("support", "signal_lost", _difference(fall, labels, np.zeros(n, np.int64), weights), n)
    yield line("support", "signal_lost", _difference(fall, labels, bins_of(loss, TENTHS), weights), n, "equal_support")
    # how far the two go together: Pearson's r of ranks
    ranks = [np.argsort(np.argsort(numbers)).astype(np.float64) for numbers in (fall, loss)]
    yield line("support", "correlation", _pearson(ranks[0], ranks[1], weights), n)


def _difference(values: FloatArray, labels: BoolArray, strata: IntArray, weights: FloatArray) -> FloatArray:
    """(1 + resample): right minus wrong, within strata that weigh by how many pairs they could make."""
    total, pairs = np.zeros(len(weights)), np.zeros(len(weights))
    for stratum in np.unique(strata):
        sides = [(strata == stratum) & side for side in (labels, ~labels)]
        if not all(side.any() for side in sides):
            continue
        number = [weights[:, side].sum(axis=1, dtype=np.float64) for side in sides]
        with np.errstate(divide="ignore", invalid="ignore"):
            means = [weights[:, side] @ values[side] / count for side, count in zip(sides, number, strict=True)]
            weight = number[0] * number[1] / (number[0] + number[1])
        there = (number[0] > 0) & (number[1] > 0)
        total += np.where(there, (means[0] - means[1]) * weight, 0)
        pairs += np.where(there, weight, 0)
    difference: FloatArray = total / np.where(pairs > 0, pairs, np.nan)
    return difference


def _pearson(first: FloatArray, second: FloatArray, weights: FloatArray) -> FloatArray:
    """(1 + resample): the correlation of two numbers of each sample."""
    moments = np.stack([first, second, first * second, first * first, second * second], axis=1)
    x, y, xy, xx, yy = weighted_mean(moments, weights).T
    correlation: FloatArray = (xy - x * y) / np.sqrt((xx - x * x) * (yy - y * y))
    return correlation


def _lines(cell: CellData) -> Iterator[EvidenceLine]:
    """From the log-probabilities that were traced with the states."""
    conditions = [name for name in SUPPORTED if name in cell.readouts.conditions]
    values: dict[str, FloatArray] = {}
    for name in conditions:
        values[name] = cell.activations.support(name).astype(np.float64)
    groups = cell.groups
    return support_lines(cell.readouts.labels, groups.clean, groups.clean + groups.change, values, cell.drawn)


CLAIMS = (
    Claim(
        "beyond_support", "The knockout removes more than the answer's support",
        "how much more right answers fall than wrong answers of equal support, in standard deviations", "support",
        0.1, "above", at_depth(0, LineName("support", "signal_lost", "equal_support")),
    ),
)  # fmt: skip

EXPERIMENT = Experiment("support", _lines, CLAIMS)
