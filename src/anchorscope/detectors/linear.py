"""Detectors that are linear in states and numbers: probes of one layer, stacks of all layers, confidence, and more.

A stack of probes is a weighted sum of read-outs, which are linear in states. So whatever it was made of, what is left
to save and to apply is one weight for each state, one for each number, and a bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.inputs import Floats, Inputs, Need
from anchorscope.detectors.training import Probed, Training, areas, fit_small
from anchorscope.study.terms import StateName

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
        """(sample): the logit that each answer is right."""
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
        for place, record in enumerate(settings["fits"]):
            prefix = f"{place}|"
            states = {
                StateName.parse(name.removeprefix(prefix)): weight
                for name, weight in tensors.items()
                if name.startswith(prefix)
            }
            numbers = {name: float(weight) for name, weight in record["numbers"].items()}  # JSON may say 1 for 1.0
            fits.append(cls(states, numbers, float(record["bias"])))
        return replace(fits[0], chosen=settings["chosen"], variants=tuple(fits[1:]))


@dataclass(frozen=True)
class Recipe:
    """Definition of a linear detector. All its choices are made inside the training set."""

    sources: tuple[StateName, ...]
    """Names of the states on which probes are fitted."""
    numbers: tuple[str, ...] = ()
    """Names of further numbers."""
    layers: Literal["best", "all", "joint"] = "all"
    """Which read-outs of the probes count: that of the layer with the best inner AUROC, all, or that of the joint
    probe, which is one probe on all layers side by side."""

    @property
    def needs(self) -> list[Need]:
        """States and numbers that the fit needs."""
        return [*self.sources, *self.numbers]

    def fit(self, training: Training) -> Linear:
        """Fit probes, choose the read-outs that count, and weigh them together with the numbers."""
        probes = [training.probed(name) for name in self.sources]
        counted = [self._counted(each.inner, training) for each in probes]
        layer = {"layer": counted[0][0]} if self.layers == "best" else {}
        if len(probes) == 1 and self.layers != "all" and not self.numbers:  # one read-out: there is nothing to weigh
            factors = [_factor(probes[0], counted[0], np.ones(1))]
            return self._linear(probes, factors, {}, 0.0, {**layer, "C": probes[0].strength})
        read_outs = [each.inner[rows] for each, rows in zip(probes, counted, strict=True)]
        numbers = [training.inputs.number(name)[None] for name in self.numbers]
        small = fit_small(np.concatenate([*read_outs, *numbers]).T, training.right, training.fold)
        ends = np.cumsum([len(rows) for rows in counted])
        *of_probes, of_numbers = np.split(small.weight[0], ends)
        factors = [_factor(*each) for each in zip(probes, counted, of_probes, strict=True)]
        chosen = {"C": [each.strength for each in probes], "stack C": small.strength, **layer}
        return self._linear(probes, factors, _named(self.numbers, of_numbers), float(small.bias[0]), chosen)

    def _counted(self, inner: Floats, training: Training) -> list[int]:
        """Which of the read-outs (layer + 1, sample) count."""
        if self.layers == "best":
            return [int(areas(inner[:-1], training.right).argmax())]
        if self.layers == "joint" or len(inner) == 2:  # in a model of one layer, both read-outs are the same
            return [len(inner) - 1]
        return list(range(len(inner)))

    def _linear(
        self,
        probes: Sequence[Probed],
        factors: Sequence[Floats],
        numbers: Mapping[str, float],
        bias: float,
        chosen: Mapping[str, Any],
    ) -> Linear:
        """The detector and its variants: sums of read-outs, each times its factor, and of numbers.

        A variant has the same factors, and read-outs of probes that left an inner fold out.
        """
        fits = []
        for fit in range(len(probes[0].weight)):
            sums = [each.summed(factor, fit) for each, factor in zip(probes, factors, strict=True)]
            states = {name: weight for name, (weight, _) in zip(self.sources, sums, strict=True)}
            fits.append(Linear(states, numbers, sum((offset for _, offset in sums), start=bias)))
        return replace(fits[0], chosen=chosen, variants=tuple(fits[1:]))


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
            Linear({}, _named(self.numbers, weight), float(bias))
            for weight, bias in zip(small.weight, small.bias, strict=True)
        ]
        return replace(fits[0], chosen={"C": small.strength}, variants=tuple(fits[1:]))


def _named(names: Sequence[str], weights: Floats) -> dict[str, float]:
    return {name: float(weight) for name, weight in zip(names, weights, strict=True)}


def _factor(probes: Probed, counted: Sequence[int], weights: Floats) -> Floats:
    """(layer + 1): how much each read-out counts; 0 for those that do not."""
    factor = np.zeros(len(probes.inner))
    factor[counted] = weights
    return factor
