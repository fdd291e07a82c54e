"""Balanced logistic regression for many fits at once, and the temperature that calibrates one.

`solve` minimises what scikit-learn's `LogisticRegression(C=…, class_weight="balanced")` does: half of |w|² plus C times
the log-loss, in which both classes weigh the same; the intercept is free. Two things make it several times as fast for
probes. Fits on subsets of the same samples are solved together, since they share one matrix. And they are solved in
the space of the samples: with K = Z Zᵀ of the standardised activations Z a solution is w = Zᵀ a and its logits are
K a + b, so that a step costs one product with K however wide the model is. The tests hold it to scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

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


class _Fits(NamedTuple):
    """Where the fits stand, or a way they can go: one row for each problem."""

    dual: FloatArray
    """(problem, sample): a, of which the weights are w = Zᵀ a"""
    bias: FloatArray
    """(problem): the intercept; of a way or a step, counted in the problem's unit"""
    image: FloatArray
    """(problem, sample): K a, kept beside a, so that a step costs one product with K"""

    def plus(self, length: FloatArray, way: _Fits) -> _Fits:
        """So far along a way, each problem its own length."""
        along = length[:, None]
        return _Fits(self.dual + along * way.dual, self.bias + length * way.bias, self.image + along * way.image)

    def size(self) -> FloatArray:
        """(problem): |w|² + bias²"""
        return _dot(self.dual, self.image) + self.bias**2


@dataclass(frozen=True)
class _Problems:
    """What is minimised, for all problems at once: half of |w|² / C plus the weighted log-loss."""

    kernel: FloatArray
    """(sample, sample): K = Z Zᵀ"""
    y: FloatArray
    """(sample): 1 where the answer is correct, else 0"""
    weight: FloatArray
    """(problem, sample): of each sample in the log-loss; 0 where it is not fitted on"""
    inverse: FloatArray
    """(problem, 1): 1 / C"""
    unit: FloatArray
    """(problem): in which the intercept is counted. It has no penalty; counted so it is yet as stiff as the weights,
    and no step is out of scale"""

    def value(self, at: _Fits) -> FloatArray:
        """(problem): the objective."""
        logits = at.image + at.bias[:, None]
        loss: FloatArray = _dot(self.weight, np.logaddexp(0, logits) - self.y * logits)
        return loss + _dot(at.dual, at.image) * self.inverse[:, 0] / 2

    def downhill(self, at: _Fits) -> tuple[_Fits, FloatArray]:
        """The negative gradient, and the curvature of the log-loss at each sample, (problem, sample)."""
        p = expit(at.image + at.bias[:, None])
        slope = self.weight * (p - self.y)
        dual = -(slope + at.dual * self.inverse)
        return _Fits(dual, -self.unit * slope.sum(axis=1), dual @ self.kernel), self.weight * p * (1 - p)

    def moved(self, at: _Fits, length: FloatArray, step: _Fits) -> _Fits:
        """So far along a step, the intercept back in its own unit."""
        return at.plus(length, step)._replace(bias=at.bias + length * self.unit * step.bias)


def solve(
    kernel: FloatArray, right: BoolArray, fitted: BoolArray, c: float | NDArray[np.float64]
) -> tuple[FloatArray, ...]:
    """Fit each problem on its own samples: `kernel` (sample, sample), `right` (sample), `fitted` (problem, sample).

    `c`, one or (problem), is the C of a fit on all samples. A fit on some of them has its C raised by as much as they
    are fewer: else its logits would be smaller for that alone, and a temperature fitted on them too low. Returns
    a (problem, sample), the intercepts (problem), and the logits of all samples, fitted or not (problem, sample).
    Newton's method; its steps come from conjugate gradients on w = Zᵀ a, written in a.
    """
    # 1. the problems, and where they begin
    weight = np.zeros(fitted.shape, kernel.dtype)
    for problem, rows in enumerate(fitted):
        weight[problem, rows] = balanced(right[rows])
    inverse = (fitted.mean(axis=1) / c)[:, None].astype(kernel.dtype)
    unit = np.sqrt(np.maximum(1, 4 * inverse[:, 0] / len(right)))
    problems = _Problems(kernel, right.astype(kernel.dtype), weight, inverse, unit)
    at = _Fits(np.zeros_like(weight), np.zeros(len(weight), kernel.dtype), np.zeros_like(weight))
    value, start = problems.value(at), np.full(len(weight), np.inf)
    # 2. Newton steps, until every gradient is small beside where its fit began
    for newton in range(NEWTON_STEPS):
        residual, curvature = problems.downhill(at)
        size = residual.size()  # |gradient|²
        if newton == 0:
            start = size + (1e-2 * len(right) * unit) ** 2  # where activations are all alike there is but rounding
        if (size <= TOLERANCE**2 * start).all():
            break
        step = _newton_step(problems, curvature, residual, start)
        # 3. what overshoots is halved; a rise within float32's rounding is none
        length = np.ones_like(at.bias)
        for _ in range(HALVINGS):
            moved = problems.moved(at, length, step)
            over = problems.value(moved) > value + 1e-5 * np.abs(value)
            if not over.any():
                break
            length = length * (1 - over / 2).astype(length.dtype)
        at, value = moved, problems.value(moved)
    else:
        if (size > (100 * TOLERANCE) ** 2 * start).any():
            raise ProbeError(f"a probe with C = {np.max(c):g} did not converge", "Choose a smaller C.")
    return at.dual, at.bias, at.image + at.bias[:, None]


def _newton_step(problems: _Problems, curvature: FloatArray, residual: _Fits, start: FloatArray) -> _Fits:
    """The step that solves the normal equations of every problem, by conjugate gradients."""
    unit = problems.unit
    step, way = _Fits(*map(np.zeros_like, residual)), residual
    size = residual.size()
    # the nearer the end, the more exact the step: this keeps Newton's speed and spares the first steps
    goal = np.where(size > TOLERANCE**2 * start, size * np.minimum(0.01, size / start), np.inf)
    for _ in range(CONJUGATE_STEPS):
        # 1. what the normal equations make of the way
        bent = curvature * (way.image + (unit * way.bias)[:, None])
        answer, answer_bias = bent + way.dual * problems.inverse, unit * bent.sum(axis=1)
        along = _dot(way.image, answer) + way.bias * answer_bias
        going = (size > goal) & (along > 0)
        if not going.any():
            break
        # 2. go along it as far as it helps
        length = size * going / np.where(going, along, 1)
        step = step.plus(length, way)
        dual = residual.dual - length[:, None] * answer
        residual = _Fits(dual, residual.bias - length * answer_bias, dual @ problems.kernel)
        # 3. and turn
        left = residual.size()
        way = residual.plus(left * going / np.where(going, size, 1), way)
        size = np.where(going, left, size)
    return step


def _dot(left: FloatArray, right: FloatArray) -> FloatArray:
    """(problem): the sum over samples of the products."""
    products: FloatArray = np.einsum("ps,ps->p", left, right)
    return products


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
    best = minimize_scalar(
        lambda log: weights @ np.logaddexp(0, signed * np.exp(-log)),
        bounds=(np.log(size / SPREADS[1]), np.log(size / SPREADS[0])),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return float(np.exp(best.x))
