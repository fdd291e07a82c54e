"""Mixture-of-Probes and Pathway Reweighting: two experts, and a gate that predicts the pathway of an answer.

    p = π_Q(h) · σ(w_Q · h) + π_A(h) · σ(w_A · h)

The gate is fitted on which training samples flip under the knockout; at test time nothing is cut. In Mixture-of-Probes
each expert is fitted on the samples of its route. In Pathway Reweighting each reads states in which the attention of
the read position to the question's, or the answer's, exact tokens was multiplied by exp(β); β is chosen with the probe.
What is chosen (layer, C, β) is chosen by the log-loss of inner folds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from anchorscope.detectors.inputs import Floats, Inputs, Need
from anchorscope.detectors.linear import Linear
from anchorscope.detectors.training import STRENGTHS, Training, areas
from anchorscope.probes.fit import standardise
from anchorscope.probes.folds import left_out
from anchorscope.probes.logistic import BoolArray, balanced_log_loss, fit_temperature
from anchorscope.study.terms import StateName

CANDIDATES = 3  # number of layers tried, those with the best inner AUROC
FEWEST = 15  # minimum number of right, and of wrong, samples to fit an expert on its own pathway
EDGE = 1e-6

Gate = Literal["learned", "random"]
Experts = Literal["pathways", "plain"]


@dataclass(frozen=True)
class Mixture:
    """A fitted mixture of two experts."""

    gate: Linear
    """Gate, whose logit is that of the question's pathway."""
    question: Linear
    """Expert of the question's pathway, which gives the logit that the answer is right."""
    answer: Linear
    """Expert of the answer's pathway."""
    temperature: float
    """Temperature by which the mixture's logit is divided."""
    drawn: tuple[float, ...] = ()
    """Logits of a random gate, one of which is drawn for each sample by its id."""
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """Settings chosen inside the training set."""
    variants: tuple[Linear, ...] = ()
    """Always empty, because mixtures are not refitted."""

    @property
    def needs(self) -> list[Need]:
        """Names of the states that it reads."""
        return list(dict.fromkeys([*self.gate.needs, *self.question.needs, *self.answer.needs]))

    def logits(self, inputs: Inputs) -> Floats:
        """(sample)"""
        gate = np.array([self._draw(name) for name in inputs.ids]) if self.drawn else self.gate.logits(inputs)
        return _mixed(gate, self.question.logits(inputs), self.answer.logits(inputs)) / self.temperature

    def _draw(self, name: str) -> float:
        number = int.from_bytes(hashlib.blake2b(f"gate/{name}".encode(), digest_size=8).digest(), "big")
        return self.drawn[number % len(self.drawn)]

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Weights by name."""
        parts = {"gate": self.gate, "question": self.question, "answer": self.answer}
        return {f"{part}|{name}": tensor for part, own in parts.items() for name, tensor in own.tensors().items()}

    def settings(self) -> dict[str, Any]:
        """All other settings, as JSON."""
        return {
            "form": "mixture",
            "parts": {name: getattr(self, name).settings() for name in ("gate", "question", "answer")},
            "temperature": self.temperature,
            "drawn": list(self.drawn),
            "chosen": dict(self.chosen),
        }

    @classmethod
    def load(cls, tensors: Mapping[str, NDArray[Any]], settings: Mapping[str, Any]) -> Mixture:
        """Rebuild a detector from its `tensors` and `settings`."""
        parts: dict[str, Linear] = {}
        for part in ("gate", "question", "answer"):
            own = {name.split("|", 1)[1]: tensor for name, tensor in tensors.items() if name.startswith(f"{part}|")}
            parts[part] = Linear.load(own, settings["parts"][part])
        return cls(
            parts["gate"], parts["question"], parts["answer"], settings["temperature"], tuple(settings["drawn"]),
            settings["chosen"],
        )  # fmt: skip


def _mixed(gate: Floats, question: Floats, answer: Floats) -> Floats:
    """Logit of the mixture."""
    share = expit(gate)
    p = share * expit(question) + (1 - share) * expit(answer)
    mixed: Floats = logit(np.clip(p, EDGE, 1 - EDGE))
    return mixed


@dataclass(frozen=True)
class _Fit:
    """Probe on the states of one layer, fitted on some of the training samples."""

    inner: Floats
    """(sample): out-of-fold read-outs of all training samples"""
    linear: Linear
    """Fit on all of those samples."""
    loss: float
    """Inner log-loss on those samples."""


@dataclass
class _Layer:
    """States of one name and layer of a training set, prepared for several fits."""

    training: Training
    """Training set."""
    name: StateName
    """Name of the states."""
    layer: int
    """Layer."""

    def __post_init__(self) -> None:
        self.layers = self.training.inputs.state(self.name).layers
        self.z, self.mean, self.scale = standardise(self.training.inputs.state(self.name).layer(self.layer))
        self.kernel = self.z @ self.z.T

    def fit(self, target: BoolArray, members: BoolArray | None = None, prior: bool = False) -> _Fit:
        """A probe for a target, fitted on some samples; C by inner log-loss. `prior`: at the target's own share."""
        from anchorscope.probes.solver import solve_kernel  # imports torch, so only where something is fitted

        training = self.training
        among = np.ones(len(target), bool) if members is None else members
        outer = np.concatenate([np.ones((1, len(target)), bool), left_out(training.fold)]) & among
        if not all(0 < target[rows].sum() < rows.sum() for rows in outer):
            outer = np.concatenate([np.ones((1, len(target)), bool), left_out(training.fold)])  # too few: all
        tried = np.array(sorted(training.strengths or STRENGTHS))
        problems = np.tile(outer, (len(tried), 1))
        duals, biases, logits = solve_kernel(self.kernel, target, problems, np.repeat(tried, len(outer)))
        best: tuple[float, int, Floats, float] | None = None
        for place in range(len(tried)):
            own: Floats = logits[place * len(outer) + 1 + training.fold, np.arange(len(target))].astype(np.float64)
            loss = balanced_log_loss(own[among], target[among])
            if best is None or loss < best[0]:
                best = loss, place, own, fit_temperature(own[among], target[among])
        assert best is not None
        loss, place, own, temperature = best
        weight = np.zeros((self.layers, self.z.shape[1]), np.float32)
        at = place * len(outer)
        weight[self.layer] = (duals[at] @ self.z) * self.scale / temperature
        bias = float(biases[at] / temperature - self.mean @ weight[self.layer].astype(np.float64))
        shift = float(logit(target[among].mean())) if prior else 0.0
        return _Fit(own / temperature + shift, Linear({self.name: weight}, {}, bias + shift), loss)


@dataclass(frozen=True)
class MixtureOfProbes:
    """Mixture-of-Probes and its two ablations."""

    clean: StateName
    """Name of the states that are read."""
    knockout: StateName
    """Name of the same states under the knockout, which assign training samples to pathways."""
    gate: Gate = "learned"
    """random: choose each expert as often, but at random."""
    experts: Experts = "pathways"
    """plain: fit the experts on random groups of the same sizes."""

    @property
    def needs(self) -> list[Need]:
        """States that the fit needs."""
        return [self.clean, self.knockout]

    def fit(self, training: Training) -> Mixture:
        """Fit the mixture at the layer with its lowest inner log-loss."""
        probed = training.probed(self.clean)
        order = np.argsort(-areas(probed.inner[:-1], training.right), kind="stable")[:CANDIDATES]
        cut = probed.read_inner(training.inputs.state(self.knockout))
        best: tuple[float, Mixture] | None = None
        for layer in order.tolist():
            for corrected in (False, True):
                drift = float((cut[layer] - probed.inner[layer]).mean()) if corrected else 0.0
                flips = (probed.inner[layer] > 0) != (cut[layer] - drift > 0)
                candidate = self._at(training, _Layer(training, self.clean, layer), flips, corrected)
                if best is None or candidate[0] < best[0]:
                    best = candidate
        assert best is not None
        return best[1]

    def _at(self, training: Training, states: _Layer, flips: BoolArray, corrected: bool) -> tuple[float, Mixture]:
        right = training.right
        rng = np.random.default_rng([training.seed, states.layer, 11])
        groups = rng.permutation(flips) if self.experts == "plain" else flips
        gate = _gate(states, flips)
        sides = []
        for members in (groups, ~groups):
            enough = min((right & members).sum(), (~right & members).sum()) >= FEWEST
            sides.append(states.fit(right, members if enough else None))
        routed = rng.permutation(gate.inner) if self.gate == "random" else gate.inner
        inner = _mixed(routed, sides[0].inner, sides[1].inner)
        temperature = fit_temperature(inner, right)
        chosen = {"layer": states.layer, "drift corrected": corrected, "share Q": float(flips.mean())}
        drawn = tuple(float(value) for value in gate.inner) if self.gate == "random" else ()
        mixture = Mixture(gate.linear, sides[0].linear, sides[1].linear, temperature, drawn, chosen)
        return balanced_log_loss(inner / temperature, right), mixture


@dataclass(frozen=True)
class PathwayReweighting:
    """Pathway Reweighting, and a control that reweights other tokens and learns as many parameters."""

    clean: StateName
    """Name of the states that are read at β = 0."""
    knockout: StateName
    """Name of the same states under the knockout, from which the gate learns the pathways."""
    question: tuple[StateName, ...]
    """Names of states with more or less attention to the question's exact tokens."""
    answer: tuple[StateName, ...]
    """Names of states with more or less attention to the answer's tokens."""

    @property
    def needs(self) -> list[Need]:
        """States that the fit needs."""
        return [self.clean, self.knockout, *self.question, *self.answer]

    def fit(self, training: Training) -> Mixture:
        """Fit at the layer with the best inner AUROC. The inner log-loss of the mixture chooses β of each pathway."""
        probed, right = training.probed(self.clean), training.right
        layer = int(areas(probed.inner[:-1], right).argmax())
        cut = probed.read_inner(training.inputs.state(self.knockout))
        flips = (probed.inner[layer] > 0) != (cut[layer] > 0)
        states = _Layer(training, self.clean, layer)
        gate, plain = _gate(states, flips), states.fit(right)
        sides: list[dict[StateName, _Fit]] = []
        for names in (self.question, self.answer):
            sides.append({self.clean: plain} | {name: _Layer(training, name, layer).fit(right) for name in names})
        best: tuple[float, Mixture] | None = None
        for first, of_question in sides[0].items():
            for second, of_answer in sides[1].items():
                inner = _mixed(gate.inner, of_question.inner, of_answer.inner)
                temperature = fit_temperature(inner, right)
                loss = balanced_log_loss(inner / temperature, right)
                if best is None or loss < best[0]:
                    chosen = {"layer": layer, "question": str(first), "answer": str(second)}
                    best = loss, Mixture(gate.linear, of_question.linear, of_answer.linear, temperature, (), chosen)
        assert best is not None
        return best[1]


def _gate(states: _Layer, flips: BoolArray) -> _Fit:
    """Classifier of the pathway from clean states, or a constant if too few or nearly all samples flip."""
    if min(flips.sum(), (~flips).sum()) < 2 * FEWEST:
        share = float(logit(np.clip(flips.mean(), 0.01, 0.99)))
        return _Fit(np.full(len(flips), share), Linear({}, {}, share), 0.0)
    return states.fit(flips, prior=True)
