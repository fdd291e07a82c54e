"""What fits of a probe weigh and how they are judged: balanced weights, the log-loss, and the temperature."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

SPREADS = (0.02, 10.0)  # of calibrated logits: what knows nothing says P = 0.5 to within half a point
HALVINGS = 24  # of the range of a temperature's logarithm: right to 4e-7


def balanced(right: BoolArray) -> NDArray[np.float64]:
    """Weights (sample) that give both classes the same sum, prior 0.5; their mean is 1."""
    share = right.mean()
    return np.where(right, 0.5 / share, 0.5 / (1 - share))


def balanced_log_loss(logits: FloatArray, right: BoolArray) -> float:
    """Mean log-loss with each class weighing one half, whatever the share of right answers."""
    return float(balanced(right) @ np.logaddexp(0, np.where(right, -logits, logits)) / len(right))


def fit_temperature(logits: FloatArray, right: BoolArray) -> float:
    """What to divide logits (sample) by for the least log-loss at prior 0.5."""
    return float(fit_temperatures(logits[None], right)[0])


def fit_temperatures(logits: FloatArray, right: BoolArray) -> NDArray[np.float64]:
    """(row): what to divide each row of logits (row, sample) by for the least log-loss at prior 0.5.

    It is bounded by what it makes of the logits (their root mean square stays within `SPREADS`), not in itself: how
    large logits are before it depends on C. Logits that rank no better than chance thus go to P near 0.5. The loss is
    convex in the inverse of the temperature, so the place where it stops falling is found by halving.
    """
    size = np.sqrt(np.mean(np.square(logits), axis=1))
    alike = size < 1e-6  # rounding: activations that are all alike
    weights, signed = balanced(right), np.where(right, -logits, logits)
    low, high = (np.log(np.where(alike, 1, size) / spread) for spread in (SPREADS[1], SPREADS[0]))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        # how the loss grows with the inverse of the temperature
        slope = (signed * expit(signed * np.exp(-middle)[:, None])) @ weights
        low, high = np.where(slope > 0, middle, low), np.where(slope > 0, high, middle)
    return np.where(alike, 1.0, np.exp((low + high) / 2))
