"""Which answers are Q-Anchored: those whose predicted class the knockout flips at the middle layer.

A sample is Q-Anchored here if that happens in at least half of the draws (repeats and halves). Groups are compared
within a predicted class: what the predicted class gives away counts for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anchorscope.evidence.means import BoolArray
from anchorscope.pathways.intervals import FloatArray
from anchorscope.study.terms import MIN_GROUP

if TYPE_CHECKING:
    from anchorscope.probes.readouts import Readouts


class Groups:
    """Who is Q-Anchored at the middle layer, and what is predicted there."""

    def __init__(self, readouts: Readouts) -> None:
        self.layer = round((readouts.layers - 1) / 2)
        knockout = readouts.conditions.index("knockout")
        both = readouts.logits[[0, knockout]][..., self.layer].astype(np.float64)  # (2, repeat, part, sample)
        self.clean: FloatArray = both[0, :, 0].mean(axis=0)
        """(sample): the whole probes' logit, mean over repeats"""
        self.change: FloatArray = both[1, :, 0].mean(axis=0) - self.clean
        """(sample): what the knockout does to it"""
        self.halves: BoolArray = ((both[0] > 0) != (both[1] > 0))[:, 1:]
        """(repeat, half, sample): whether the predicted class flips"""
        self.q: BoolArray = self.halves.mean(axis=(0, 1)) >= 0.5
        """(sample): Q-Anchored"""
        self.predicted: BoolArray = self.clean > 0
        """(sample): predicted correct"""


def difference(values: FloatArray, groups: Groups, inverse: FloatArray, weights: FloatArray) -> FloatArray | None:
    """(1 + resample): Q minus A of a number, within predicted classes; None where none has enough."""
    known = np.isfinite(values)
    total, weight = np.zeros(len(weights)), 0.0
    for side in (groups.predicted, ~groups.predicted):
        members = [side & known & group for group in (groups.q, ~groups.q)]
        sizes = [int(rows.sum()) for rows in members]
        if min(sizes) < MIN_GROUP:
            continue
        counted = [weights[:, rows] * inverse[rows] for rows in members]
        with np.errstate(divide="ignore", invalid="ignore"):
            q, a = (count @ values[rows] / count.sum(axis=1) for count, rows in zip(counted, members, strict=True))
        pairs = sizes[0] * sizes[1] / sum(sizes)
        total, weight = total + pairs * (q - a), weight + pairs
    return total / weight if weight else None
