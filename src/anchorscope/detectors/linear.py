"""Detectors that are linear in states and numbers: probes of one layer, stacks of all layers, confidence, and more.

A stack of probes is a weighted sum of read-outs, which are linear in states. So whatever it was made of, what is left
to save and to apply is one weight for each state, one for each number, and a bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.inputs import Floats, Inputs, Need
from anchorscope.detectors.training import Probed, Small, Training, areas, fit_small
from anchorscope.pathways.intervals import Auroc, resample
from anchorscope.probes.logistic import fit_temperature
from anchorscope.study.terms import StateName

BAGS = 50  # resamples in which the best layer is chosen

Weights = NDArray[np.float32]


@dataclass(frozen=True)
class Linear:
    """A fitted detector, which gives the logit that the answer is right, calibrated at a base rate of one half."""

    states: Mapping[StateName, Weights]
    """Weights (layer, width) by the name of the states."""
    numbers: Mapping[str, float]
    """Weights of the numbers, by name."""
    bias: float
    """Intercept."""
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """Layer and C as chosen inside the training set, for the card."""
    variants: tuple[Linear, ...] = ()
    """The same detector fitted without one inner fold each, to measure how much it depends on its training samples."""

    @property
    def needs(self) -> list[Need]:
        """Names of the states and numbers that it reads."""
        return [*self.states, *self.numbers]

    def logits(self, inputs: Inputs) -> Floats:
        """(sample)"""
        out = np.full(len(inputs), self.bias)
        for name in sorted(self.states):  # always in the same order, so that a loaded detector gives identical scores
            out += self.by_layer(inputs, name, self.states[name]).sum(axis=0)
        for number in sorted(self.numbers):
            out += self.numbers[number] * inputs.number(number)
        return out

    @staticmethod
    def by_layer(inputs: Inputs, name: StateName, weight: Weights) -> Floats:
        """(layer, sample): contribution of each layer to the logit, without the bias."""
        states = inputs.state(name)
        out = np.zeros((len(weight), len(inputs)))
        for layer in np.flatnonzero(weight.any(axis=1)):
            out[layer] = states.layer(int(layer)).astype(np.float64) @ weight[layer].astype(np.float64)
        return out

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Weights by name, including those of its variants."""
        tensors: dict[str, NDArray[Any]] = {}
        for number, fit in enumerate((self, *self.variants)):
            tensors |= {f"{number}|{name}": weight for name, weight in fit.states.items()}
        return tensors

    def settings(self) -> dict[str, Any]:
        """All other settings, as JSON."""
        fits = [{"numbers": dict(fit.numbers), "bias": fit.bias} for fit in (self, *self.variants)]
        return {"form": "linear", "fits": fits, "chosen": dict(self.chosen)}

    @classmethod
    def load(cls, tensors: Mapping[str, NDArray[Any]], settings: Mapping[str, Any]) -> Linear:
        """Rebuild a detector from its `tensors` and `settings`. ValueError where they do not belong together."""
        if not {name.split("|")[0] for name in tensors} <= set(map(str, range(len(settings["fits"])))):
            raise ValueError("it has weights of a fit that its record does not have")
        if any(weight.ndim != 2 for weight in tensors.values()):
            raise ValueError("its weights are not of the shape (layer, width)")
        fits = []
        for place, fit in enumerate(settings["fits"]):
            mine = f"{place}|"
            own = {
                StateName.parse(name[len(mine) :]): weight for name, weight in tensors.items() if name.startswith(mine)
            }
            numbers = {number: float(weight) for number, weight in fit["numbers"].items()}  # JSON may say 1 for 1.0
            fits.append(cls(own, numbers, float(fit["bias"])))
        return cls(fits[0].states, fits[0].numbers, fits[0].bias, settings["chosen"], tuple(fits[1:]))


class ReadoutSource(NamedTuple):
    """Probes that a detector is built from, with the states they are fitted on and the states they read."""

    fitted: StateName
    """Name of the states on which the probes are fitted."""
    read: StateName | None = None
    """Name of the states that they read (None: the same)."""

    @property
    def states(self) -> StateName:
        """Name of the states that are read."""
        return self.read or self.fitted


@dataclass(frozen=True)
class Recipe:
    """Definition of a linear detector. All its choices are made inside the training set."""

    sources: tuple[ReadoutSource, ...] = ()
    """Read-outs of every layer."""
    numbers: tuple[str, ...] = ()
    """Names of further numbers."""
    layers: Literal["best", "bagged", "all", "joint"] = "all"
    """The layer with the best inner AUROC; the mean over the best layers of many resamples; all of them, weighed; or
    one probe on all of them side by side."""

    @property
    def needs(self) -> list[Need]:
        """States and numbers that the fit needs."""
        return list(
            dict.fromkeys([*(s.fitted for s in self.sources), *(s.states for s in self.sources), *self.numbers])
        )

    def fit(self, training: Training) -> Linear:
        """Fit the detector."""
        probed = [training.probed(source.fitted) for source in self.sources]
        inner = [
            probes.inner if source.states == source.fitted else probes.read_inner(training.inputs.state(source.states))
            for source, probes in zip(self.sources, probed, strict=True)
        ]
        if self.layers == "bagged":
            return self._bagged(training, probed[0], inner[0])
        best = int(areas(inner[0][:-1], training.right).argmax()) if self.layers == "best" else -1
        if self.layers == "best" and not self.numbers:
            return self._made(probed, [_unit(inner[0], best)], None, {"layer": best, "C": probed[0].strength})
        if self.layers == "joint" and not self.numbers and len(probed) == 1:
            return self._made(probed, [_unit(inner[0], len(inner[0]) - 1)], None, {"C": probed[0].strength})
        kept = [[best] if self.layers == "best" else _kept(readouts, self.layers) for readouts in inner]
        features = np.concatenate([*(readouts[rows] for readouts, rows in zip(inner, kept, strict=True)),
                                   *(training.inputs.number(name)[None] for name in self.numbers)]).T  # fmt: skip
        small = fit_small(features, training.right, training.fold)
        factors, start = [], 0
        for readouts, rows in zip(inner, kept, strict=True):
            factor = np.zeros((1 + len(small.inner_weight), len(readouts)))
            factor[:, rows] = np.vstack([small.weight, small.inner_weight])[:, start : start + len(rows)]
            factors.append(factor)
            start += len(rows)
        return self._made(
            probed,
            factors,
            small,
            {"C": [probes.strength for probes in probed], "stack C": small.strength}
            | ({"layer": best} if self.layers == "best" else {}),
        )

    def _bagged(self, training: Training, probed: Probed, inner: Floats) -> Linear:
        """Average of the best layers of many resamples of the clusters, calibrated."""
        drawn = resample(training.clusters, 1, BAGS, training.seed).samples[1:]
        best = np.nanargmax(Auroc(training.right, drawn)(inner[:-1].T), axis=1)
        factor = np.append(np.bincount(best, minlength=len(inner) - 1) / BAGS, 0.0)
        factor /= fit_temperature(factor @ inner, training.right)
        layers = {str(layer): int((best == layer).sum()) for layer in np.unique(best)}
        return self._made([probed], [factor[None]], None, {"layers": layers, "C": probed.strength})

    def _made(
        self, probed: Sequence[Probed], factors: Sequence[Floats], small: Small | None, chosen: dict[str, Any]
    ) -> Linear:
        """The whole fit and its variants, from how much each read-out counts: (fit, layer + 1) for each source.

        A variant weighs read-outs as the whole fit does and takes them from probes that left an inner fold out.
        """
        fits = []
        for number in range(1 + len(probed[0].inner_weight)):
            bias = small.bias if small is not None else 0.0
            states: dict[StateName, Weights] = {}
            for source, probes, factor in zip(self.sources, probed, factors, strict=True):
                weight, offset = _collapsed(probes, factor[0], number)
                bias += offset
                before = states.get(source.states)
                states[source.states] = weight if before is None else before + weight
            numbers = {}
            if small is not None and self.numbers:
                own = small.weight[len(small.weight) - len(self.numbers) :]
                numbers = {name: float(value) for name, value in zip(self.numbers, own, strict=True)}
            fits.append(Linear(states, numbers, float(bias)))
        return Linear(fits[0].states, fits[0].numbers, fits[0].bias, chosen, tuple(fits[1:]))


@dataclass(frozen=True)
class NumbersOnly:
    """Detector from numbers alone, such as forms of confidence. Sign and scale are learnt inside the training set."""

    numbers: tuple[str, ...]
    """Names of the numbers."""

    @property
    def needs(self) -> list[Need]:
        """Names of the numbers that it reads."""
        return list(self.numbers)

    def fit(self, training: Training) -> Linear:
        """Fit the detector."""
        features = np.stack([training.inputs.number(name) for name in self.numbers], axis=1)
        small = fit_small(features, training.right, training.fold)
        fits = [
            Linear({}, {name: float(value) for name, value in zip(self.numbers, weight, strict=True)}, float(bias))
            for weight, bias in zip([small.weight, *small.inner_weight], [small.bias, *small.inner_bias], strict=True)
        ]
        return Linear({}, fits[0].numbers, fits[0].bias, {"C": small.strength}, tuple(fits[1:]))


def _unit(inner: Floats, layer: int) -> Floats:
    factor = np.zeros((1, len(inner)))
    factor[0, layer] = 1.0
    return factor


def _kept(inner: Floats, layers: str) -> list[int]:
    """Select the read-outs that count: all layers and the joint one, the joint one alone, or one layer."""
    if layers == "joint" or len(inner) == 2:
        return [len(inner) - 1]
    return list(range(len(inner)))


def _collapsed(probed: Probed, factor: Floats, fit: int) -> tuple[Weights, float]:
    """Weights (layer, width) and bias of a weighted sum of read-outs. Fit 0 is the fit on all samples."""
    if fit == 0:
        parts = probed.weight, probed.bias, probed.joint, probed.joint_bias
    else:
        at = fit - 1
        parts = probed.inner_weight[at], probed.inner_bias[at], probed.inner_joint[at], probed.inner_joint_bias[at]
    weight, bias, joint, joint_bias = parts
    states = factor[:-1, None] * weight.astype(np.float64) + factor[-1] * joint.astype(np.float64)
    return states.astype(np.float32), float(factor[:-1] @ bias + factor[-1] * joint_bias)
