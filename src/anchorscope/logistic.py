"""Balanced logistic regression for many fits at once, and the temperature that calibrates one.

`solve` minimises what scikit-learn's `LogisticRegression(C=…, class_weight="balanced")` does: half of |w|² plus C times
the log-loss, in which both classes weigh the same; the intercept is free. Two things make it several times as fast for
probes. Fits on subsets of the same samples are solved together, since they share one matrix. And they are solved in
the space of the samples: with K = Z Zᵀ of the standardised activations Z a solution is w = Zᵀ a and its logits are
K a + b, so that a step costs one product with K however wide the model is. The tests hold it to scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit

from anchorscope.errors import ProbeError

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

SPREADS = (0.02, 10.0)  # of calibrated logits: what knows nothing says P = 0.5 to within half a point
TOLERANCE = 1e-5  # of the gradient, relative to where the fit began: for C up to 1, logits right to 1e-3 at least
NEWTON_STEPS, HALVINGS, CONJUGATE_STEPS = 50, 20, 250


def solve(
    kernel: FloatArray, right: BoolArray, fitted: BoolArray, c: float | NDArray[np.float64]
) -> tuple[FloatArray, ...]:
    """Fit each problem on its own samples: `kernel` (sample, sample), `right` (sample), `fitted` (problem, sample).

    `c`, one or (problem), is the C of a fit on all samples. A fit on some of them has its C raised by as much as they
    are fewer: else its logits would be smaller for that alone, and a temperature fitted on them too low. Returns
    a (problem, sample), the intercepts (problem), and the logits of all samples, fitted or not (problem, sample).
    Newton's method; its steps come from conjugate gradients on w = Zᵀ a, written in a.
    """
    weight = np.zeros(fitted.shape, kernel.dtype)
    for problem, rows in enumerate(fitted):
        weight[problem, rows] = balanced(right[rows])
    y, inverse = right.astype(kernel.dtype), (fitted.mean(axis=1) / c)[:, None].astype(kernel.dtype)
    # the intercept has no penalty; counted in this unit it is yet as stiff as the weights, and no step is out of scale
    unit = np.sqrt(np.maximum(1, 4 * inverse[:, 0] / len(y)))
    a, ka, b = np.zeros_like(weight), np.zeros_like(weight), np.zeros(len(weight), kernel.dtype)

    def objective(a: FloatArray, b: FloatArray, ka: FloatArray) -> FloatArray:  # (problem)
        logits = ka + b[:, None]
        found: FloatArray = _dot(weight, np.logaddexp(0, logits) - y * logits) + _dot(a, ka) * inverse[:, 0] / 2
        return found

    value, start = objective(a, b, ka), np.full(len(b), np.inf)
    for newton in range(NEWTON_STEPS):
        p = expit(ka + b[:, None])
        slope = weight * (p - y)
        residual, residual_b = -(slope + a * inverse), -unit * slope.sum(axis=1)
        k_residual = residual @ kernel
        size = _dot(residual, k_residual) + residual_b**2  # |gradient|²
        if newton == 0:
            start = size + (1e-2 * len(y) * unit) ** 2  # where activations are all alike there is but rounding
        if (size <= TOLERANCE**2 * start).all():
            break
        step, step_b, k_step = _newton_step(
            kernel, weight * p * (1 - p), inverse, unit, residual, residual_b, k_residual, start
        )
        length = np.ones_like(b)
        for _ in range(HALVINGS):  # of what overshoots; a rise within float32's rounding is none
            moved = a + length[:, None] * step, b + length * unit * step_b, ka + length[:, None] * k_step
            over = objective(*moved) > value + 1e-5 * np.abs(value)
            if not over.any():
                break
            length = length * (1 - over / 2).astype(b.dtype)
        a, b, ka = moved
        value = objective(a, b, ka)
    else:
        if (size > (100 * TOLERANCE) ** 2 * start).any():
            raise ProbeError(f"a probe with C = {np.max(c):g} did not converge", "Choose a smaller C.")
    return a, b, ka + b[:, None]


def _newton_step(
    kernel: FloatArray,
    curvature: FloatArray,
    inverse: FloatArray,
    unit: FloatArray,
    residual: FloatArray,
    residual_b: FloatArray,
    k_residual: FloatArray,
    start: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The steps of a and b that solve the normal equations, and K times the former, for all problems at once."""
    step, step_b, k_step = np.zeros_like(residual), np.zeros_like(residual_b), np.zeros_like(residual)
    way, way_b, k_way = residual, residual_b, k_residual
    size = _dot(residual, k_residual) + residual_b**2
    # the nearer the end, the more exact the step: this keeps Newton's speed and spares the first steps
    goal = np.where(size > TOLERANCE**2 * start, size * np.minimum(0.01, size / start), np.inf)
    for _ in range(CONJUGATE_STEPS):
        bent = curvature * (k_way + (unit * way_b)[:, None])
        image, image_b = bent + way * inverse, unit * bent.sum(axis=1)
        along = _dot(k_way, image) + way_b * image_b
        going = (size > goal) & (along > 0)
        if not going.any():
            break
        length = size * going / np.where(going, along, 1)
        step, step_b, k_step = step + length[:, None] * way, step_b + length * way_b, k_step + length[:, None] * k_way
        residual, residual_b = residual - length[:, None] * image, residual_b - length * image_b
        k_residual = residual @ kernel
        new = _dot(residual, k_residual) + residual_b**2
        turn = new * going / np.where(going, size, 1)
        way, way_b, k_way = (
            residual + turn[:, None] * way,
            residual_b + turn * way_b,
            k_residual + turn[:, None] * k_way,
        )
        size = np.where(going, new, size)
    return step, step_b, k_step


def _dot(left: FloatArray, right: FloatArray) -> FloatArray:
    """(problem): the sum over samples of the products."""
    found: FloatArray = np.einsum("ps,ps->p", left, right)
    return found


def balanced(right: BoolArray) -> NDArray[np.float64]:
    """Weights (sample) that give both classes the same sum, prior 0.5; their mean is 1."""
    share = right.mean()
    weights: NDArray[np.float64] = np.where(right, 0.5 / share, 0.5 / (1 - share))
    return weights


def balanced_log_loss(logits: FloatArray, right: BoolArray) -> float:
    """Mean log-loss with each class weighing one half, whatever the share of right answers."""
    return float(balanced(right) @ np.logaddexp(0, np.where(right, -logits, logits)) / len(right))


def fit_temperature(logits: FloatArray, right: BoolArray) -> float:
    """What to divide logits by for the least log-loss at prior 0.5.

    It is bounded by what it makes of the logits (their root mean square stays within `SPREADS`), not in itself: how
    large logits are before it depends on C. Logits that rank no better than chance thus go to P near 0.5.
    """
    size = float(np.sqrt(np.mean(np.square(logits))))
    if size < 1e-6:  # rounding: activations that are all alike
        return 1.0
    weights, signed = balanced(right), np.where(right, -logits, logits)
    found = minimize_scalar(
        lambda log: weights @ np.logaddexp(0, signed * np.exp(-log)),
        bounds=(np.log(size / SPREADS[1]), np.log(size / SPREADS[0])),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return float(np.exp(found.x))
