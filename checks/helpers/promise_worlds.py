"""Worlds in which clusters of unequal size are scored differently, and detectors that promise something in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.crossfit import Labelled
from anchorscope.detectors.detector import About, Card, FittedDetector
from anchorscope.detectors.drift import Moments
from anchorscope.detectors.fit import kept_for_promise
from anchorscope.detectors.inputs import Floats, Inputs
from anchorscope.detectors.thresholds import HeldOut, Promise

LARGEST = 12  # clusters have 1 to 12 answers, each size as often as any other
LARGE = 9  # in clusters of 9 answers and more, right and wrong answers are harder to tell apart


def clustered_world(clusters: int, rng: np.random.Generator, rate: float) -> Labelled:
    """Answers of clusters. A share `rate` is wrong, in some clusters more; the answers of a cluster score alike."""
    sizes = rng.integers(1, LARGEST + 1, clusters)
    cluster = np.repeat(np.arange(clusters), sizes)
    right = rng.random(len(cluster)) > rng.beta(3 * rate, 3 * (1 - rate), clusters)[cluster]
    large = (sizes >= LARGE)[cluster]
    clue = np.where(right, 4.0 - 0.6 * large, 1.5 * large)
    clue += 0.6 * rng.normal(size=clusters)[cluster] + 0.8 * rng.normal(size=len(cluster))
    size = len(cluster)
    numbers = {
        "logprob_mean": clue,
        "logprob_min": clue + rng.normal(size=size),
        "logprob_sum": rng.normal(size=size),
        "log_tokens": rng.normal(size=size),
    }
    inputs = Inputs([str(i) for i in range(size)], [""] * size, [""] * size, numbers, {})
    return Labelled(inputs, right, cluster, np.ones(size))


def fitted_on(samples: Labelled, rate: float, seed: int) -> FittedDetector:
    """A detector as `detect fit` makes it, with answers held out, but without what its card says and a promise."""
    kept = kept_for_promise(samples, seed)
    fitted = catalogue()["confidence"].fitter.fit(samples.training(np.flatnonzero(~kept), seed))
    rest = samples.of(np.flatnonzero(kept))
    held_out = HeldOut(-fitted.logits(rest.inputs), rest.right, rest.clusters, seed)
    about = About({}, "made up", {}, "", "mlp", 1, 1)
    card = Card("confidence", "", [], 0, 0, rate, [0.5] * 3, [0.5] * 3, {}, {}, [])
    return FittedDetector(fitted, about, card, Moments({}, {}, math.inf, 1), rate, held_out=held_out)


def promised(detector: FittedDetector, promise: Promise) -> FittedDetector:
    """The same with a promise at its base rate."""
    assert detector.held_out is not None
    return replace(detector, threshold=detector.held_out.threshold(promise, detector.base_rate))


@dataclass(frozen=True)
class TestAnswers:
    """New answers of a world, and how often each draw takes each of them."""

    samples: Labelled
    """The answers."""
    draws: Mapping[str, Floats]
    """By draw, (sample): the weight of each answer."""

    @classmethod
    def of(cls, samples: Labelled) -> TestAnswers:
        """`errors_passed`: a cluster, then one of its answers. `false_alarms`: then one of its right answers."""
        all_of, right_of = (np.bincount(samples.clusters, weights) for weights in (None, samples.right))
        draws = {
            "errors_passed": 1 / all_of[samples.clusters],
            "false_alarms": samples.right / np.maximum(right_of, 1)[samples.clusters],
            "all answers": np.ones(len(samples.right)),
        }
        return cls(samples, draws)

    def rate(self, promise: Promise, flagged: NDArray[np.bool_], draw: str, base_rate: float) -> float:
        """The promised rate under a draw: P(flagged | right), or P(wrong | passed) at the base rate."""
        weight, right = self.draws[draw], self.samples.right
        right_passed, wrong_passed = (
            float(weight[of_class & ~flagged].sum() / max(weight[of_class].sum(), 1e-12))
            for of_class in (right, ~right)
        )
        if promise.kind == "false_alarms":
            return 1 - right_passed
        passed = base_rate * wrong_passed + (1 - base_rate) * right_passed
        return base_rate * wrong_passed / passed if passed else 0.0


@dataclass
class PromiseCount:
    """How often a promise was given and broken at one base rate, and what the rates were."""

    given: int = 0
    """Thresholds that were found."""
    broken: int = 0
    """Of these, how many break the promise, where an answer is drawn as the promise says."""
    rates: list[float] = field(default_factory=list)
    """The rate of each, where an answer is drawn as the promise says."""
    rates_of_all: list[float] = field(default_factory=list)
    """The rate over all answers."""
    rates_if_left: list[float] = field(default_factory=list)
    """The rate that the promise speaks of, if the threshold had stayed."""
    passed: list[float] = field(default_factory=list)
    """The share of answers that pass, where an answer is drawn as the promise says."""

    def add(
        self, test: TestAnswers, promise: Promise, scores: Floats, detector: FittedDetector, base_rate: float
    ) -> None:
        """Count a detector that is moved to a base rate; `scores` are its scores of the test answers."""
        first, moved = detector.score_threshold, detector.at(base_rate).score_threshold
        if first is not None:
            self.rates_if_left.append(test.rate(promise, scores > first, promise.kind, base_rate))
        if moved is None:
            return
        flagged = scores > moved
        self.given += 1
        self.rates.append(test.rate(promise, flagged, promise.kind, base_rate))
        self.rates_of_all.append(test.rate(promise, flagged, "all answers", base_rate))
        self.broken += self.rates[-1] > promise.at_most
        weight, right = test.draws["errors_passed"], test.samples.right
        shares = [np.average(~flagged[of_class], weights=weight[of_class]) for of_class in (right, ~right)]
        self.passed.append(float((1 - base_rate) * shares[0] + base_rate * shares[1]))

    def figures(self, repeats: int) -> dict[str, float | int | None]:
        """One row of the table."""

        def mean(values: list[float]) -> float | None:
            return round(float(np.mean(values)), 4) if values else None

        return {
            "repeats": repeats, "given": self.given, "broken": self.broken,
            "kept share": round(1 - self.broken / repeats, 3), "rate": mean(self.rates),
            "rate over all answers": mean(self.rates_of_all), "rate if left": mean(self.rates_if_left),
            "passed": mean(self.passed),
        }  # fmt: skip
