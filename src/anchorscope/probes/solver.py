"""Balanced logistic regressions by the hundred: all fits of a layer at once, on whichever samples each is fitted on.

What is minimised is scikit-learn's `LogisticRegression(C=…, class_weight="balanced")` on standardised activations: half
of |w|² plus C times the log-loss, in which both classes weigh the same; the intercept is free. All fits share one
matrix X of activations, scaled once. A training set's own standardisation is a factor for each feature (the intercept
takes up the mean), and a sample that a fit does not see has weight 0 in it. So a step of all fits is two products
with X, which keep a core or a GPU busy; a matrix for each training set, or its kernel, would be read for a few fits.

Newton's method; a step comes from conjugate gradients. These are preconditioned by the directions in which X varies
most: there the curvature is known beforehand, and elsewhere it is nearly the same in all directions. Samples that a fit
does not see change but the path to its solution, within TOLERANCE. The tests hold it to scikit-learn.

Shape letters: P fits, N samples, D features and the intercept behind them, K directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from anchorscope.errors import ProbeError
from anchorscope.probes.logistic import BoolArray, FloatArray, balanced

TOLERANCE = 1e-5  # of the gradient, relative to where the fit began: for C up to 1, logits right to 1e-3 at least
NEWTON_STEPS, HALVINGS, CONJUGATE_STEPS = 50, 20, 250
DIRECTIONS, ROUNDS = 64, 2  # of the preconditioner, and how often they are refined
CONSTANT = 1e-6  # spread relative to the mean below which a feature only carries float32's rounding
FEW = 256  # rows that say where the middle of a feature is
AT_ONCE = 512  # fits; beyond that a step gains nothing
JITTER = 1e-6  # of a kernel's mean diagonal: a Cholesky factor needs it, no read-out sees it


def compute_device() -> torch.device:
    """Where fits are computed: on the GPU where torch has one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Fits(NamedTuple):
    """What is to be fitted: one row for each fit."""

    training: BoolArray
    """(set, sample): training sets, by which activations are standardised"""
    of_set: NDArray[np.intp]
    """(fit): its training set"""
    fitted: BoolArray
    """(fit, sample): what it is fitted on, all of its training set or a part"""
    c: NDArray[np.float64]
    """(fit): the C of a fit on the whole training set. A fit on some of it has its C raised by as much as they are
    fewer: else its logits would be smaller for that alone, and a temperature fitted on them too low."""


class Near(NamedTuple):
    """Where fits begin, in the units of the activations: as in `Solved`."""

    weight: NDArray[np.float64]
    """(fit, width)"""
    bias: NDArray[np.float64]
    """(fit)"""


class Solved(NamedTuple):
    """The fits, in the units of the activations: a logit is (x - middle) @ weight + bias."""

    weight: NDArray[np.float64]
    """(fit, width)"""
    bias: NDArray[np.float64]
    """(fit)"""
    middle: NDArray[np.float64]
    """(width)"""
    logits: NDArray[np.float32]
    """(fit, sample): of all samples, fitted on or not"""


class Shared:
    """The activations of one layer, (sample, width), scaled once for all fits on them."""

    def __init__(self, x: NDArray[np.float32], device: torch.device | None = None) -> None:
        self.device = device if device is not None else compute_device()
        # medians of some rows: a mean would follow one outlier, and others lose their last digits
        rows = x[:: -(-len(x) // FEW)]
        self.middle = np.median(rows, axis=0)
        typical = 1.5 * np.median(np.abs(rows - self.middle), axis=0)
        states = torch.empty(len(x), x.shape[1] + 1)
        states[:, -1] = 1
        torch.sub(torch.from_numpy(x), torch.from_numpy(self.middle), out=states[:, :-1])
        farthest = states[:, :-1].abs().amax(dim=0).numpy()
        self.spread = np.where(typical > 0, typical, np.where(farthest > 0, farthest, 1)).astype(np.float32)
        states[:, :-1] /= torch.from_numpy(self.spread)
        self.states = states.to(self.device)  # (N, D)

    def solve(self, right: BoolArray, fits: Fits, near: Near | None = None) -> Solved:
        """Fit them all. `near`: where each may begin, the solution of a fit on nearly the same samples."""
        scales = self._scales(fits.training)
        share = fits.fitted.sum(axis=1) / fits.training.sum(axis=1)[fits.of_set]
        weight, bias, logits = [], [], []
        for first in range(0, len(fits.c), AT_ONCE):
            chunk = slice(first, first + AT_ONCE)
            scale = scales[torch.from_numpy(fits.of_set[chunk]).to(self.device)]
            begin = None if near is None else self._scaled(near, chunk, scale)
            at = _minimised(self.states, right, fits.fitted[chunk], share[chunk] / fits.c[chunk], scale, begin)
            solution = (at.weight * scale).cpu().numpy().astype(np.float64)
            weight.append(solution[:, :-1] / self.spread)
            bias.append(solution[:, -1])
            logits.append(at.logits.cpu().numpy())
        whole = (np.concatenate(pieces) for pieces in (weight, bias, logits))
        weights, biases, read = whole
        return Solved(weights, biases, self.middle.astype(np.float64), read)

    def _scaled(self, near: Near, some: slice, scale: Tensor) -> Tensor:
        """(P, D): where fits begin, in the units they are fitted in; 0 for a feature without a spread."""
        weight = near.weight[some] * self.spread
        begin = np.concatenate([weight, near.bias[some][:, None]], axis=1).astype(np.float32)
        inverse = torch.where(scale > 0, 1 / scale.clamp(min=1e-30), 0)
        return torch.from_numpy(begin).to(self.device) * inverse

    def _scales(self, training: BoolArray) -> Tensor:
        """(set, D): the inverse of a feature's spread in each training set, 0 for a constant one; the intercept's 1."""
        scales = np.ones((len(training), self.states.shape[1]), np.float32)
        rows = torch.from_numpy(training).to(self.device, torch.float64)
        rows /= rows.sum(dim=1, keepdim=True)
        # some features at a time: float64, as a mean is subtracted
        for first in range(0, len(self.middle), FEW):
            features = slice(first, min(first + FEW, len(self.middle)))
            states = self.states[:, features].double()
            mean = (rows @ states).cpu().numpy()
            square = (rows @ states.square()).cpu().numpy()
            spread = np.sqrt(np.maximum(square - mean**2, 0))
            # relative to the mean as it was, and to the one subtracted here
            least = np.maximum(np.abs(mean + self.middle[features] / self.spread[features]), np.abs(mean))
            varies = spread > CONSTANT * least
            scales[:, features] = np.where(varies, 1 / np.where(varies, spread, 1), 0)
        return torch.from_numpy(scales).to(self.device)


def solve_kernel(
    kernel: FloatArray, right: BoolArray, fitted: BoolArray, c: float | NDArray[np.float64]
) -> tuple[FloatArray, ...]:
    """The fits of one training set of which the kernel K = Z Zᵀ alone is known: (sample, sample).

    Any factor of it takes the place of Z. Returns a (fit, sample), of which the weights are w = Zᵀ a, the intercepts
    and the logits of all samples. `fitted` is (fit, sample), `c` one or (fit), as in `Fits`.
    """
    device, size = compute_device(), len(right)
    factor = torch.ones(size, size + 1, device=device)
    factor[:, :-1] = _factor(torch.from_numpy(np.ascontiguousarray(kernel, np.float32)).to(device))
    at = _minimised(factor, right, fitted, fitted.mean(axis=1) / c, factor.new_ones(len(fitted), size + 1))
    a = torch.linalg.solve_triangular(factor[:, :-1].mT, at.weight[:, :-1].mT, upper=True).mT
    return a.cpu().numpy(), at.weight[:, -1].cpu().numpy(), at.logits.cpu().numpy()


def _factor(kernel: Tensor) -> Tensor:
    """The Cholesky factor of a kernel (N, N), of which as little as is needed is added to the diagonal."""
    least = JITTER * kernel.diagonal().mean() + 1e-30
    factor = kernel
    for _ in range(8):
        factor, failed = torch.linalg.cholesky_ex(kernel + least * torch.eye(len(kernel), device=kernel.device))
        if not failed:
            break
        least = 10 * least
    return factor


class _At(NamedTuple):
    """Where fits stand, or a step of them."""

    weight: Tensor
    """(P, D): of standardised activations; the last is the intercept"""
    logits: Tensor
    """(P, N)"""


@dataclass(frozen=True)
class _Problems:
    """What is minimised: half of |w|² / C plus the weighted log-loss; nearly the inverse of its curvature."""

    x: Tensor
    """(N, D): the activations that all share"""
    y: Tensor
    """(N): 1 where the answer is correct, else 0"""
    directions: Tensor
    """(D, K): in which x varies most"""
    weight: Tensor
    """(P, N): of each sample in the log-loss; 0 where it is not fitted on"""
    penalty: Tensor
    """(P, D): 1 / C; 0 for the intercept"""
    scale: Tensor
    """(P, D): the standardisation of the fit's training set"""
    along: Tensor
    """(P, K): the inverse of the curvature along the directions, beyond the others'"""
    others: Tensor
    """(P, 1): the inverse of the curvature in all other directions"""

    def of(self, rows: Tensor) -> _Problems:
        own = (self.weight, self.penalty, self.scale, self.along, self.others)
        return _Problems(self.x, self.y, self.directions, *(tensor[rows] for tensor in own))

    def value(self, at: _At) -> Tensor:
        """(P): what is minimised."""
        loss = (self.weight * (softplus(at.logits) - self.y * at.logits)).sum(dim=1)
        return loss + (self.penalty * at.weight.square()).sum(dim=1) / 2

    def turned(self, gradient: Tensor) -> Tensor:
        """(P, D): a gradient by the inverse of the curvature."""
        return gradient * self.others + ((gradient @ self.directions) * self.along) @ self.directions.mT


def _problems(x: Tensor, right: BoolArray, fitted: BoolArray, inverse: FloatArray, scale: Tensor) -> _Problems:
    """The problems of fits on rows of x, `inverse` (P) their 1 / C."""
    # 1. who weighs what
    weights = np.zeros(fitted.shape, np.float32)
    for problem, rows in enumerate(fitted):
        weights[problem, rows] = balanced(right[rows])
    weight, y, c = (
        torch.from_numpy(array.astype(np.float32)).to(x.device) for array in (weights, right, inverse[:, None])
    )
    penalty = c.repeat(1, x.shape[1])
    penalty[:, -1] = 0
    # 2. the directions in which x varies most, and how much it varies in the others on average
    norms = torch.einsum("nd,nd->n", x, x)
    mass = weight.sum(dim=0) / weight.sum() * (norms.median() / norms.clamp(min=1e-30)).clamp(max=1)  # no outlier rules
    mass = mass[:, None]  # (N, 1)
    rank = min(DIRECTIONS, *x.shape)
    drawn = torch.randn(x.shape[1], rank, generator=torch.Generator().manual_seed(0)).to(x.device)
    for _ in range(ROUNDS):
        drawn = torch.linalg.qr(x.mT @ (mass * (x @ drawn)))[0]
    image = x @ drawn
    spread, turn = torch.linalg.eigh(image.mT @ (mass * image))
    whole = norms @ mass[:, 0]
    rest = (whole - spread.sum()).clamp(min=0) / max(min(x.shape) - rank, 1)
    # 3. the curvature: a probability of one half bends by a quarter
    bend = weight.sum(dim=1, keepdim=True) / 4 * scale.square().median(dim=1, keepdim=True).values  # (P, 1)
    others = 1 / (c + bend * rest / 2)
    along = 1 / (c + bend * spread.clamp(min=0)) - others
    return _Problems(x, y, drawn @ turn, weight, penalty, scale, along, others)


def _minimised(
    x: Tensor, right: BoolArray, fitted: BoolArray, inverse: FloatArray, scale: Tensor, begin: Tensor | None = None
) -> _At:
    """Newton steps, until every gradient is small beside that of no weights at all. `begin`: (P, D), else there."""
    every = _problems(x, right, fitted, inverse, scale)
    at = _At(torch.zeros_like(scale), torch.zeros_like(every.weight))
    # small beside no weights, wherever a fit begins; where activations are all alike there is but rounding
    gradient = -scale * ((every.weight * (0.5 - every.y)) @ x)
    total = every.weight.sum(dim=1)
    start = (gradient * every.turned(gradient)).sum(dim=1) + 1e-4 * total
    first = gradient.square().sum(dim=1) + (1e-2 * total).square()
    if begin is not None:
        at = _At(begin, (scale * begin) @ x.mT)
    value = every.value(at)
    rows = torch.arange(len(value), device=x.device)  # fits that are not done
    for _ in range(NEWTON_STEPS):
        # 1. the negative gradient and its size; who is done leaves
        problems, logits = every.of(rows), at.logits[rows]
        slope = problems.weight * (torch.sigmoid(logits) - problems.y)
        gradient = -(problems.scale * (slope @ x) + problems.penalty * at.weight[rows])
        turned = problems.turned(gradient)
        size, steep = (gradient * turned).sum(dim=1), gradient.square().sum(dim=1)
        left = (size > TOLERANCE**2 * start[rows]) | (steep > TOLERANCE**2 * first[rows])
        if not left.any():
            return at
        rows, problems, size = rows[left], problems.of(left), size[left]
        # 2. the step; what overshoots is halved, and a rise within float32's rounding is none
        step = _step(problems, logits[left], gradient[left], turned[left], size, start[rows])
        before, length = value[rows], torch.ones(len(rows), device=x.device)
        for _ in range(HALVINGS):
            moved = _At(*(old[rows] + length[:, None] * way for old, way in zip(at, step, strict=True)))
            new = problems.value(moved)
            over = new > before + 1e-5 * before.abs()
            if not over.any():
                break
            length = torch.where(over, length / 2, length)
        at.weight[rows], at.logits[rows], value[rows] = moved.weight, moved.logits, new
    if (size > (100 * TOLERANCE) ** 2 * start[rows]).any():
        raise ProbeError(f"a probe with C = {1 / inverse.min():g} did not converge", "Choose a smaller C.")
    return at


def _step(problems: _Problems, logits: Tensor, residual: Tensor, turned: Tensor, size: Tensor, start: Tensor) -> _At:
    """The step that solves the normal equations of every problem, by conjugate gradients."""
    p = torch.sigmoid(logits)
    curvature = problems.weight * p * (1 - p)
    # the nearer the end, the more exact the step: this keeps Newton's speed and spares the first steps
    goal = torch.maximum(size * (size / start).clamp(max=0.01), 1e-2 * TOLERANCE**2 * start)
    whole = _At(torch.zeros_like(residual), torch.zeros_like(logits))
    step, way, rows = whole, turned, torch.arange(len(size), device=size.device)
    for _ in range(CONJUGATE_STEPS):
        # 1. what the normal equations make of the way
        image = (problems.scale * way) @ problems.x.mT
        answer = problems.scale * ((curvature * image) @ problems.x) + problems.penalty * way
        bent = (way * answer).sum(dim=1)
        # 2. go along it as far as it helps
        length = torch.where((bent > 0) & (size > 0), size / bent, 0)[:, None]
        step = _At(step.weight + length * way, step.logits + length * image)
        residual = residual - length * answer
        # 3. and turn
        turned = problems.turned(residual)
        left = (residual * turned).sum(dim=1)
        going = (left > goal) & (bent > 0)
        way, size = turned + torch.where(size > 0, left / size, 0)[:, None] * way, left
        # 4. who has arrived leaves, a quarter of them at a time: until then they go on, which does no harm
        if going.sum() <= 0.75 * len(going):
            whole.weight[rows[~going]], whole.logits[rows[~going]] = step.weight[~going], step.logits[~going]
            if not going.any():
                return whole
            rows, problems, step = rows[going], problems.of(going), _At(step.weight[going], step.logits[going])
            residual, way, size, goal, curvature = (e[going] for e in (residual, way, size, goal, curvature))
    whole.weight[rows], whole.logits[rows] = step.weight, step.logits
    return whole
