"""Training sets of detectors, and probes of every layer fitted within a training set.

Whatever a detector chooses (a layer, C, a sign, a gate, the weights of a stack) it chooses by read-outs of samples that
the probe was not fitted on: inner folds of the training set. Samples to be tested are not in here, so they cannot take
part. Probes are fitted once and shared by all detectors that ask for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from anchorscope.detectors.inputs import Floats, Inputs, States
from anchorscope.pathways.intervals import Auroc
from anchorscope.probes.fit import standardise
from anchorscope.probes.folds import IntArray, checked_labels, inner_folds, left_out
from anchorscope.probes.logistic import BoolArray, balanced, balanced_log_loss, fit_temperature
from anchorscope.study.terms import StateName

INNER = 4
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)
FRACTIONS = (0.4, 0.7)  # depths of the layers at which C is chosen


@dataclass(frozen=True)
class Probed:
    """Probes of every layer and of all layers together, fitted on one kind of states of a training set.

    A read-out is states @ weight + bias, the logit that the answer is right; temperatures are folded in. The last
    read-out is the joint probe's: one logistic regression on all layers side by side. Fit 0 is on all samples, each
    other fit leaves one inner fold out.
    """

    weight: NDArray[np.float32]
    """(fit, layer, width)"""
    bias: Floats
    """(fit, layer)"""
    joint: NDArray[np.float32]
    """(fit, layer, width): weights of the joint probe"""
    joint_bias: Floats
    """(fit): intercept of the joint probe"""
    inner: Floats
    """(layer + 1, sample): out-of-fold read-outs of the training samples"""
    strength: float
    """C"""

    @property
    def layers(self) -> int:
        """Number of layers of the model."""
        return int(self.weight.shape[1])

    def read(self, states: States, fit: int = 0) -> Floats:
        """(layer + 1, sample): read-outs of samples that the fit did not see."""
        read_outs = []
        together: Floats | float = self.joint_bias[fit]
        for layer in range(self.layers):
            state = states.layer(layer).astype(np.float64)
            read_outs.append(state @ self.weight[fit, layer] + self.bias[fit, layer])
            together = together + state @ self.joint[fit, layer]
        return np.stack([*read_outs, np.asarray(together)])

    def summed(self, factor: Floats, fit: int) -> tuple[NDArray[np.float32], float]:
        """Weights (layer, width) and bias of a sum of read-outs, each times its factor (layer + 1)."""
        weight, joint = self.weight[fit].astype(np.float64), self.joint[fit].astype(np.float64)
        states = factor[:-1, None] * weight + factor[-1] * joint
        return states.astype(np.float32), float(factor[:-1] @ self.bias[fit] + factor[-1] * self.joint_bias[fit])


@dataclass
class Training:
    """Samples of one training set with their labels."""

    inputs: Inputs
    """Inputs of the detectors."""
    right: BoolArray
    """(sample): whether the answer is right"""
    clusters: IntArray
    """(sample): cluster, which folds never split"""
    seed: int = 0
    """Seed of the inner folds."""
    strengths: Sequence[float] = STRENGTHS
    """Candidates for C."""
    _probed: dict[StateName, Probed] = field(default_factory=dict, repr=False)
    """Probes by the name of the states."""

    def __post_init__(self) -> None:
        self.right, self.clusters = checked_labels(self.right, self.clusters)
        self.fold = inner_folds(self.right, self.clusters, INNER, [self.seed, 7])

    def __len__(self) -> int:
        return len(self.right)

    def probed(self, name: StateName) -> Probed:
        """Probes on the states of this name, fitted on first use."""
        if name not in self._probed:
            self._probed[name] = self._fit(self.inputs.state(name))
        return self._probed[name]

    def of(self, rows: NDArray[np.intp]) -> Training:
        """Training set of some of the samples."""
        return Training(self.inputs.of(rows), self.right[rows], self.clusters[rows], self.seed, self.strengths)

    def _fit(self, states: States) -> Probed:
        from anchorscope.probes.solver import solve_kernel  # imports torch, so only where something is fitted

        size, fits = len(self.right), 1 + INNER
        fitted = np.concatenate([np.ones((1, size), bool), left_out(self.fold)])
        width = states.layer(0).shape[1]
        strength = self._strength(states)
        weight = np.empty((fits, states.layers, width), np.float32)
        bias, inner = np.empty((fits, states.layers)), np.empty((states.layers + 1, size))
        together = np.zeros((size, size), np.float32)
        scaling = []
        # 1. each layer by itself
        for layer in range(states.layers):
            z, mean, scale = standardise(states.layer(layer))
            kernel = z @ z.T
            together += kernel / states.layers
            scaling.append((mean, scale))
            duals, intercepts, logits = solve_kernel(kernel, self.right, fitted, strength)
            inner[layer], temperature = self._calibrated(logits[1:])
            weight[:, layer] = (duals @ z) * scale / temperature
            # from the weights as stored, so that their rounding is not multiplied by a large mean
            bias[:, layer] = intercepts / temperature - weight[:, layer].astype(np.float64) @ mean
        # 2. all layers side by side: their kernels added
        duals, intercepts, logits = solve_kernel(together, self.right, fitted, strength)
        inner[-1], temperature = self._calibrated(logits[1:])
        joint = np.empty_like(weight)
        joint_bias = intercepts.astype(np.float64) / temperature
        for layer in range(states.layers):
            mean, scale = scaling[layer]
            z = (states.layer(layer) - mean.astype(np.float32)) * scale.astype(np.float32)
            joint[:, layer] = (duals @ z) * scale / temperature / states.layers
            joint_bias -= joint[:, layer].astype(np.float64) @ mean
        return Probed(weight, bias, joint, joint_bias, inner, strength)

    def _calibrated(self, logits: Floats) -> tuple[Floats, float]:
        """Calibrated out-of-fold logit of each sample, and the temperature."""
        read_outs = logits[self.fold, np.arange(len(self.fold))].astype(np.float64)
        temperature = fit_temperature(read_outs, self.right)
        return read_outs / temperature, temperature

    def _strength(self, states: States) -> float:
        """Choose C by the inner log-loss, pooled over some layers."""
        from anchorscope.probes.solver import solve_kernel

        if len(self.strengths) == 1:
            return self.strengths[0]
        fitted, tried = left_out(self.fold), np.array(sorted(self.strengths))
        loss = np.zeros(len(tried))
        for fraction in FRACTIONS:
            z = standardise(states.layer(round(fraction * (states.layers - 1))))[0]
            solved = solve_kernel(z @ z.T, self.right, np.tile(fitted, (len(tried), 1)), np.repeat(tried, len(fitted)))[
                2
            ]
            for place, logits in enumerate(np.split(solved, len(tried))):
                read_outs = logits[self.fold, np.arange(len(self.fold))].astype(np.float64)
                loss[place] += balanced_log_loss(read_outs, self.right)
        return float(tried[loss.argmin()])


@dataclass(frozen=True)
class Small:
    """Balanced logistic regression on a few features."""

    weight: Floats
    """(fit, feature): weights of the features on their original scale. Fit 0 is on all samples, each other fit leaves
    one inner fold out."""
    bias: Floats
    """(fit): intercept"""
    inner: Floats
    """(sample): calibrated out-of-fold read-outs of the training samples"""
    strength: float
    """C"""


def fit_small(
    features: Floats, right: BoolArray, fold: NDArray[np.intp], strengths: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1, 1)
) -> Small:
    """Fit on features (sample, feature). Inner folds choose C by log-loss and give the temperature."""
    mean, spread = features.mean(axis=0), features.std(axis=0)
    scale = np.where(spread > 1e-9 * np.maximum(1, np.abs(mean)), 1 / np.where(spread > 0, spread, 1), 0)
    z = (features - mean) * scale
    folds = int(fold.max()) + 1
    best: tuple[float, float, Floats, list[tuple[Floats, float]]] | None = None
    for c in strengths:
        fits: list[tuple[Floats, float]] = []
        read_outs: Floats = np.empty(len(right))
        for held_out in range(folds):
            train = fold != held_out
            weight, bias = ridge_logistic(z[train], right[train], c)
            read_outs[~train] = z[~train] @ weight + bias
            fits.append((weight, bias))
        loss = balanced_log_loss(read_outs, right)
        if best is None or loss < best[0]:
            best = loss, c, read_outs, fits
    assert best is not None
    _, strength, chosen, fits = best
    temperature = fit_temperature(chosen, right)
    fits.insert(0, ridge_logistic(z, right, strength))
    weights = np.stack([weight for weight, _ in fits]) * scale / temperature
    biases = np.array([bias for _, bias in fits]) / temperature - weights @ mean
    return Small(weights, biases, chosen / temperature, strength)


def ridge_logistic(z: Floats, right: BoolArray, c: float, steps: int = 50) -> tuple[Floats, float]:
    """Minimise |w|² / 2 + C Σ weight · log-loss by Newton's method, with equal class weights and a free intercept."""
    x = np.concatenate([z, np.ones((len(z), 1))], axis=1)
    penalty = np.append(np.full(z.shape[1], 1 / c), 0.0)
    weights, y = balanced(right), right.astype(np.float64)
    at = np.zeros(x.shape[1])

    def value(point: Floats) -> float:
        logits = x @ point
        return float(weights @ (np.logaddexp(0, logits) - y * logits) + penalty @ point**2 / 2)

    now = value(at)
    for _ in range(steps):
        p = expit(x @ at)
        slope = x.T @ (weights * (p - y)) + penalty * at
        curvature = (x * (weights * p * (1 - p))[:, None]).T @ x + np.diag(penalty + 1e-9)
        step = np.linalg.solve(curvature, slope)
        length = 1.0
        while value(at - length * step) > now + 1e-12 and length > 1e-6:
            length /= 2
        at = at - length * step
        before, now = now, value(at)
        if abs(before - now) < 1e-10 * max(1.0, abs(now)):
            break
    return at[:-1], float(at[-1])


def area(logits: Floats, right: BoolArray) -> float:
    """AUROC of read-outs."""
    return float(Auroc(right, np.ones((1, len(right)), np.float32))(logits[:, None])[0, 0])


def areas(logits: Floats, right: BoolArray) -> Floats:
    """(layer): AUROC of read-outs (layer, sample)."""
    by_layer: Floats = Auroc(right, np.ones((1, len(right)), np.float32))(logits.T)[0].astype(np.float64)
    return by_layer
