"""Curves of one detector on one model and dataset, as the page draws them: risk against coverage, and calibration.

Both are (x, y, score of the first answer, score of the last, answers; point), in whole numbers of 16 bits: x and y in
hundredths of a percent, scores as the page keeps those of samples, so that a point opens exactly its answers.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from anchorscope.report.page.pack import whole

SCALE = 1000.0  # scores are kept to a thousandth
PERCENT = 100.0  # shares are kept to a hundredth of a percent
FIRST, MOST = 15, 60  # answers before the first point of a risk curve; number of its points
PARTS, FEWEST = 10, 10  # parts of a calibration curve; answers that a part must have

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def risk(scores: Floats, right: Bools, probability: Floats) -> NDArray[np.int16]:
    """Share of wrong answers among those kept, the surest first, weighted by 1 / sampling probability."""
    order = np.argsort(-scores, kind="stable")
    weights = 1 / probability[order]
    kept, wrong = np.cumsum(weights), np.cumsum(weights * ~right[order])
    place = np.arange(len(order))
    shown = place[(place >= FIRST) & ((place % -(-len(order) // MOST) == 0) | (place == len(order) - 1))]
    ends = scores[order[0 * shown]], scores[order[shown]]
    return _packed(kept[shown] / weights.sum(), wrong[shown] / kept[shown], *ends, shown + 1)


def calibration(scores: Floats, right: Bools) -> NDArray[np.int16]:
    """Share of wrong answers by P(wrong), in parts of as many answers; right and wrong answers weigh the same."""
    order = np.argsort(-scores, kind="stable")
    rights = int(right.sum())
    if not 0 < rights < len(right):
        return np.empty((5, 0), np.int16)
    weights, p_wrong = np.where(right, 0.5 / rights, 0.5 / (len(right) - rights)), expit(-scores)
    edges = np.arange(PARTS + 1) * len(order) // PARTS
    parts = [order[start:end] for start, end in pairwise(edges) if end - start >= FEWEST]
    said, wrong = (np.array([np.average(x[part], weights=weights[part]) for part in parts]) for x in (p_wrong, ~right))
    first, last = (scores[[part[place] for part in parts]] for place in (0, -1))
    return _packed(said, wrong, first, last, np.array([len(part) for part in parts]))


def _packed(x: Floats, y: Floats, first: Floats, last: Floats, answers: NDArray[np.int64]) -> NDArray[np.int16]:
    shares = [whole(100 * share, PERCENT) for share in (x, y)]
    return np.stack([*shares, whole(first, SCALE), whole(last, SCALE), whole(answers, 1)])
