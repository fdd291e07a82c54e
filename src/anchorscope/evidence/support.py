"""Support: the log-probability that the answer loses when the question is cut, and how much of the effect it explains.

The signal that the knockout removes is how much more the read-outs of right answers fall than those of wrong ones. If
support explained it all, right and wrong answers of equal support would fall alike. So they are compared within tenths
of support.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from anchorscope.evidence.claim import Claim, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.means import BoolArray, IntArray, bins_of
from anchorscope.pathways.intervals import FloatArray, Resamples
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series

TENTHS = 10


def support_series(
    labels: BoolArray, clean: FloatArray, knockout: FloatArray, lost: FloatArray, drawn: Resamples
) -> Iterator[Series]:
    """How much more right answers fall than wrong answers of equal support.

    `clean` and `knockout` (sample): read-outs at one layer. `lost` (sample): log-probability without the question.
    """
    fall = (clean - knockout) / clean.std()
    yield Series.of(BEYOND, _difference(fall, labels, bins_of(lost, TENTHS), drawn.samples), len(labels))


BEYOND = Key("support_signal_lost", "equal_support")


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
    return total / np.where(pairs > 0, pairs, np.nan)


def _series(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    """From the log-probabilities that were traced with the states."""
    support: list[FloatArray] = [cell.activations.support(name).astype(np.float64) for name in ("clean", "knockout")]
    groups = cell.groups
    lost = support[0] - support[1]
    return support_series(cell.readouts.labels, groups.clean, groups.clean + groups.change, lost, cell.drawn)


CLAIMS = (
    Claim(
        "beyond_support", "The knockout removes more than the answer's support",
        "how much more right answers fall than wrong answers of equal support, in standard deviations", "support",
        0.1, "above", at_depth(0, BEYOND),
    ),
)  # fmt: skip

EXPERIMENT = Experiment("support", _series, (BEYOND.statistic,), CLAIMS)
