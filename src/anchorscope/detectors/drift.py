"""Drift of new inputs from the training inputs of a detector, by the first two moments of its states and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.inputs import CONFIDENCE_NUMBERS, PASSAGE, PROMPT_TOKENS, Floats, Inputs, Need, states_among
from anchorscope.study.terms import StateName

VERY_MANY = 10**6  # tokens: no limit
FAR = 0.995  # of the training samples lie nearer than what is called unlike them
MOVED = 0.33  # training spreads by which a mean may move
UNLIKE_STATES = "its states are unlike those on which the detector was fitted"
UNLIKE_NUMBERS = "its log-probabilities or length are unlike those on which the detector was fitted"
NUMBER_WORDS = {
    "logprob_mean": "the mean log-probability",
    "logprob_min": "the lowest log-probability",
    "logprob_sum": "the sum of log-probabilities",
    "log_tokens": "the length of the answer",
    PROMPT_TOKENS: "the length of the prompt",
}
"""What is compared beside states, in words."""


@dataclass(frozen=True)
class Moments:
    """Mean and spread of training states and numbers, and how far samples lie from them."""

    mean: Mapping[StateName, NDArray[np.float32]]
    """By the name of the states, (layer, width)."""
    scale: Mapping[StateName, NDArray[np.float32]]
    """Likewise, the inverse of the spread; 0 where a feature does not vary."""
    farthest: float
    """A sample whose states are farther than this is unlike the training samples."""
    tokens: int
    """The longest answer among them."""
    prompt: int = VERY_MANY
    """Tokens of the longest prompt among them, behind those that all share."""
    passages: bool | None = None
    """Whether a passage came with any of their questions; None where nobody knows, as in files of earlier versions."""
    numbers: Mapping[str, tuple[float, float]] | None = None
    """By the name of a number, its mean and the inverse of its spread, 0 where it does not vary; None in files of
    earlier versions."""
    reads: tuple[str, ...] = ()
    """Numbers that the detector reads."""
    farthest_numbers: float = np.inf
    """A sample whose numbers are farther than this is unlike the training samples."""
    expected: float = 1 - FAR
    """Share of the training samples that are unlike the others, by their states or by their numbers."""

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
        """Tokens of a prompt beyond which nothing is said: a quarter more than any had."""
        return 5 * self.prompt // 4 + 8

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

    def number_distance(self, inputs: Inputs) -> Floats:
        """(sample): root mean square of the standardised numbers that the detector reads."""
        known = self.numbers or {}
        squares = [((inputs.number(name) - known[name][0]) * known[name][1]) ** 2 for name in self.reads]
        return np.sqrt(np.mean(squares, axis=0)) if squares else np.zeros(len(inputs))

    def why_unlike(self, inputs: Inputs) -> list[str]:
        """(sample): why a sample is farther out than nearly all training samples; empty if it is not."""
        # a distance that is not a number is no sign of likeness
        states = ~(self.distance(inputs) <= self.farthest) if self.mean else np.zeros(len(inputs), bool)
        numbers = ~(self.number_distance(inputs) <= self.farthest_numbers)
        return [
            UNLIKE_STATES if far else UNLIKE_NUMBERS if odd else "" for far, odd in zip(states, numbers, strict=True)
        ]

    def tensors(self) -> dict[str, NDArray[Any]]:
        """By name."""
        pairs = (("mean", self.mean), ("scale", self.scale))
        return {f"{part}|{name}": tensor for part, tensors in pairs for name, tensor in tensors.items()}

    def settings(self) -> dict[str, Any]:
        """Everything else, as JSON."""
        return {
            "farthest": self.farthest, "tokens": self.tokens, "prompt": self.prompt, "passages": self.passages,
            "numbers": self.numbers, "reads": self.reads, "farthest_numbers": self.farthest_numbers,
            "expected": self.expected,
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
        numbers, reads = settings.get("numbers"), tuple(settings.get("reads", ()))
        if not set(reads) <= set(numbers or ()):
            raise ValueError("it has no mean of the numbers that it reads")
        return cls(
            parts["mean"], parts["scale"], settings["farthest"], *most, settings.get("passages"),
            {name: (mean, scale) for name, (mean, scale) in numbers.items()} if numbers is not None else None, reads,
            settings.get("farthest_numbers", np.inf), settings.get("expected", 1 - FAR),
        )  # fmt: skip


def moments_of(inputs: Inputs, needs: Sequence[Need], weight: Floats | None = None) -> Moments:
    """Of training samples, for the states and numbers that a detector reads, and for lengths.

    `weight` (sample): how many answers each stands for, as wrong ones are drawn less often than they occur.
    """
    mean: dict[StateName, NDArray[np.float32]] = {}
    scale: dict[StateName, NDArray[np.float32]] = {}
    for name in states_among(needs):
        states = inputs.state(name)
        means, scales = [], []
        for layer in range(states.layers):
            x = states.layer(layer).astype(np.float64)
            middle, spread = _middle(x, weight)
            means.append(middle)
            scales.append(np.where(spread > 1e-6 * np.abs(means[-1]), 1 / np.where(spread > 0, spread, 1), 0))
        mean[name], scale[name] = np.array(means, np.float32), np.array(scales, np.float32)
    passages = bool(inputs.number(PASSAGE).any()) if PASSAGE in inputs.numbers else None
    most = (_most(answer_tokens(inputs)), _most(inputs.numbers.get(PROMPT_TOKENS)))
    reads = tuple(name for name in CONFIDENCE_NUMBERS if name in needs)
    also = [name for name in ("log_tokens", PROMPT_TOKENS) if name in inputs.numbers and name not in reads]
    numbers = {name: _moments_of_number(inputs.number(name), weight) for name in (*reads, *also)}
    moments = Moments(mean, scale, np.inf, *most, passages, numbers, reads)
    if mean:
        moments = replace(moments, farthest=float(np.quantile(moments.distance(inputs), FAR)))
    if reads:
        moments = replace(moments, farthest_numbers=float(np.quantile(moments.number_distance(inputs), FAR)))
    return replace(moments, expected=max(1 - FAR, float(np.mean([bool(why) for why in moments.why_unlike(inputs)]))))


def _middle(values: NDArray[np.float64], weight: Floats | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weighted mean and spread of values (sample, …)."""
    mean = np.average(values, axis=0, weights=weight)
    return mean, np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weight))


def _moments_of_number(values: Floats, weight: Floats | None) -> tuple[float, float]:
    """The mean, and the inverse of the spread; 0 where a number does not vary."""
    mean, spread = map(float, _middle(values.astype(np.float64), weight))
    return mean, 1 / spread if spread > 1e-6 * abs(mean) else 0.0


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
    """How many lie farther out than nearly all training samples, or are longer than any, or came with a passage."""
    expected: float
    """The share of training samples that lie as far out."""
    p: float
    """How likely as many would be if they were like the training samples (binomial, one-sided)."""
    moved: float
    """Mean distance of the new samples' mean states from the training mean, in training spreads, root mean square."""
    noise: float
    """What `moved` would be by chance for as many samples."""
    numbers: Mapping[str, float] = {}
    """By name, by how many training spreads the mean of a number has moved."""
    unknown: Sequence[str] = ()
    """What could not be compared, in words."""

    @property
    def drifted(self) -> bool:
        """Whether they look like others: too many far out, or a mean has moved by more than a third of a spread.

        Any of the few numbers may move by chance, so a number must move by three times the noise.
        """
        number = max(map(abs, self.numbers.values()), default=0.0)
        return self.p < 0.01 or self.moved > max(MOVED, 2 * self.noise) or number > max(MOVED, 3 * self.noise)

    @property
    def in_words(self) -> list[str]:
        """What was found, in sentences."""
        shares = f"{100 * self.unlike / max(1, self.samples):.1f} %"
        sentences = [
            f"{self.samples:,} answers: {self.unlike} ({shares}) are unlike the training answers; "
            f"{100 * self.expected:.1f} % were expected. Their mean states have shifted by {self.moved:.2f} standard "
            "deviations"
        ]
        if self.numbers:
            moved = [f"{NUMBER_WORDS[name]} by {by:+.2f}" for name, by in self.numbers.items()]
            sentences.append(f"In standard deviations, the mean of these numbers has shifted: {', '.join(moved)}")
        if self.unknown:
            sentences.append(
                f"The detector's file does not say how {' and '.join(self.unknown)} were at fitting, so they were not "
                "compared. Fit the detector again with this version"
            )
        known = (
            "No difference was found in what could be compared."
            if self.unknown
            else "They look like the training answers."
        )
        return [*sentences, "They differ from the training answers." if self.drifted else known]


def drift_of(moments: Moments, inputs: Inputs) -> Drift:
    """Compare new samples with the training samples: states, numbers, lengths and passages."""
    from scipy.stats import binomtest  # half a second that loading a detector need not wait for

    unlike = sum(
        bool(odd or long) for odd, long in zip(moments.why_unlike(inputs), moments.too_long(inputs), strict=True)
    )
    squares, count = 0.0, 0
    for name, mean in moments.mean.items():
        states = inputs.state(name)
        for layer in range(len(mean)):
            z = (states.layer(layer).astype(np.float64).mean(axis=0) - mean[layer]) * moments.scale[name][layer]
            squares, count = squares + float(np.mean(z * z)), count + 1
    size, expected = len(inputs), moments.expected
    p = float(binomtest(unlike, size, expected, alternative="greater").pvalue) if size else 1.0
    known = {name: each for name, each in (moments.numbers or {}).items() if name in inputs.numbers and size}
    numbers = {name: float((inputs.number(name).mean() - mean) * scale) for name, (mean, scale) in known.items()}
    unknown = ["log-probabilities and lengths"] if moments.numbers is None else []
    moved, noise = float(np.sqrt(squares / max(1, count))), float(1 / np.sqrt(max(1, size)))
    return Drift(size, unlike, expected, p, moved, noise, numbers, unknown)
