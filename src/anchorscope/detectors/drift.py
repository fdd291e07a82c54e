"""Drift of new inputs from the training inputs of a detector, by the first two moments of its states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.inputs import PASSAGE, PROMPT_TOKENS, Floats, Inputs
from anchorscope.study.terms import StateName

VERY_MANY = 10**6  # tokens: no limit
FAR = 0.995  # of the training samples lie nearer than what is called unlike them


@dataclass(frozen=True)
class Moments:
    """Mean and spread of training states, and how far samples lie from them."""

    mean: Mapping[StateName, NDArray[np.float32]]
    """By the name of the states, (layer, width)."""
    scale: Mapping[StateName, NDArray[np.float32]]
    """Likewise, the inverse of the spread; 0 where a feature does not vary."""
    farthest: float
    """A sample farther than this is unlike the training samples."""
    tokens: int
    """The longest answer among them."""
    prompt: int = VERY_MANY
    """Tokens of the longest prompt among them, behind those that all share."""
    passages: bool | None = None
    """Whether a passage came with any of their questions; None where nobody knows, as in files of earlier versions."""

    def beyond(self, prompt: float | None, answer: float | None, passage: bool) -> str:
        """Why an answer is beyond what the training samples were, before its states are read; empty if it is not.

        `prompt`, `answer`: numbers of tokens, where they are known. `passage`: whether one came with the question.
        """
        if answer is not None and answer > self.tokens + 0.5:
            return f"it is too long: {answer:.0f} tokens, while training answers had at most {self.tokens}"
        if passage and self.passages is False:
            return "a passage came with its question, but the detector was fitted without passages"
        if prompt is not None and prompt > self.longest_prompt:
            return f"its prompt is too long: {prompt:.0f} tokens, while training prompts had at most {self.prompt}"
        return ""

    def too_long(self, inputs: Inputs) -> list[str]:
        """Why each sample is beyond what the training samples were, as `beyond` says it."""
        prompts, answers, passages = (
            inputs.numbers.get(PROMPT_TOKENS),
            answer_tokens(inputs),
            inputs.numbers.get(PASSAGE),
        )
        return [
            self.beyond(
                None if prompts is None else float(prompts[place]),
                None if answers is None else float(answers[place]),
                passages is not None and bool(passages[place]),
            )
            for place in range(len(inputs))
        ]

    @property
    def longest_prompt(self) -> int:
        """Tokens of a prompt beyond which nothing is said: half as many again as any had."""
        return 3 * self.prompt // 2 + 16

    def distance(self, inputs: Inputs) -> Floats:
        """(sample): log of the mean square of standardised states, mean over layers and kinds of states."""
        out, count = np.zeros(len(inputs)), 0
        for name, mean in self.mean.items():
            states = inputs.state(name)
            for layer in range(len(mean)):
                z = (states.layer(layer).astype(np.float64) - mean[layer]) * self.scale[name][layer]
                out += np.log(np.mean(z * z, axis=1) + 1e-12)
                count += 1
        return out / max(1, count)

    def unlike(self, inputs: Inputs) -> NDArray[np.bool_]:
        """(sample): whether a sample is farther out than nearly all training samples."""
        # a distance that is not a number is no sign of likeness
        return np.asarray(~(self.distance(inputs) <= self.farthest)) if self.mean else np.zeros(len(inputs), bool)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """By name."""
        pairs = (("mean", self.mean), ("scale", self.scale))
        return {f"{part}|{name}": tensor for part, tensors in pairs for name, tensor in tensors.items()}

    def settings(self) -> dict[str, Any]:
        """Everything else, as JSON."""
        return {
            "farthest": self.farthest, "tokens": self.tokens, "prompt": self.prompt, "passages": self.passages,
        }  # fmt: skip

    @classmethod
    def load(cls, tensors: Mapping[str, NDArray[Any]], settings: Mapping[str, Any]) -> Moments:
        """From what `tensors` and `settings` gave."""
        parts: dict[str, dict[StateName, NDArray[Any]]] = {"mean": {}, "scale": {}}
        for name, tensor in tensors.items():
            part, state = name.split("|", 1)
            parts[part][StateName.parse(state)] = tensor
        shapes = [{name: tensor.shape for name, tensor in tensors.items()} for tensors in parts.values()]
        if shapes[0] != shapes[1] or any(len(shape) != 2 for shape in shapes[0].values()):
            raise ValueError("the mean and the spread of its training states do not match")
        # the log of a mean square near 1, so below -1 only if most features were constant; infinite without states
        if not (-1 < settings["farthest"] < np.inf if parts["mean"] else settings["farthest"] == np.inf):
            raise ValueError(f"moments.farthest cannot be {settings['farthest']}")
        most = settings["tokens"], settings.get("prompt", VERY_MANY)
        return cls(parts["mean"], parts["scale"], settings["farthest"], *most, settings.get("passages"))


def moments_of(inputs: Inputs, names: Sequence[StateName]) -> Moments:
    """Of training samples, for the states of these names."""
    mean: dict[StateName, NDArray[np.float32]] = {}
    scale: dict[StateName, NDArray[np.float32]] = {}
    for name in names:
        states = inputs.state(name)
        means, scales = [], []
        for layer in range(states.layers):
            x = states.layer(layer).astype(np.float64)
            spread = x.std(axis=0)
            means.append(x.mean(axis=0))
            scales.append(np.where(spread > 1e-6 * np.abs(means[-1]), 1 / np.where(spread > 0, spread, 1), 0))
        mean[name], scale[name] = np.array(means, np.float32), np.array(scales, np.float32)
    passages = bool(inputs.number(PASSAGE).any()) if PASSAGE in inputs.numbers else None
    most = (_most(answer_tokens(inputs)), _most(inputs.numbers.get(PROMPT_TOKENS)))
    moments = Moments(mean, scale, np.inf, *most, passages)
    return replace(moments, farthest=float(np.quantile(moments.distance(inputs), FAR))) if mean else moments


def answer_tokens(inputs: Inputs) -> Floats | None:
    """(sample): how many tokens an answer has; None where nobody knows."""
    return np.exp(inputs.number("log_tokens")) if "log_tokens" in inputs.numbers else None


def _most(tokens: Floats | None) -> int:
    """The most tokens of any; very many where nobody knows."""
    return VERY_MANY if tokens is None else round(float(tokens.max()))


class Drift(NamedTuple):
    """What `detect check` finds of new samples."""

    samples: int
    """How many were looked at."""
    unlike: int
    """How many lie farther out than nearly all training samples."""
    expected: float
    """The share of training samples that do."""
    p: float
    """How likely as many would be if they were like the training samples (binomial, one-sided)."""
    moved: float
    """Mean distance of the new samples' mean from the training mean, in training spreads, root mean square."""
    noise: float
    """What `moved` would be by chance for as many samples."""

    @property
    def drifted(self) -> bool:
        """Whether they look like others: too many far out, or their mean has moved by more than a third of a spread."""
        return self.p < 0.01 or self.moved > max(0.33, 2 * self.noise)


def drift_of(moments: Moments, inputs: Inputs) -> Drift:
    """Compare new samples with the training samples."""
    from scipy.stats import binomtest  # half a second that loading a detector need not wait for

    unlike = int(moments.unlike(inputs).sum())
    squares, count = 0.0, 0
    for name, mean in moments.mean.items():
        states = inputs.state(name)
        for layer in range(len(mean)):
            z = (states.layer(layer).astype(np.float64).mean(axis=0) - mean[layer]) * moments.scale[name][layer]
            squares, count = squares + float(np.mean(z * z)), count + 1
    size, expected = len(inputs), 1 - FAR
    p = float(binomtest(unlike, size, expected, alternative="greater").pvalue) if size else 1.0
    return Drift(size, unlike, expected, p, float(np.sqrt(squares / max(1, count))), float(1 / np.sqrt(max(1, size))))
