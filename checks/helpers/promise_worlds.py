"""Worlds in which clusters of unequal size are scored differently, and what a detector's promise comes to in them.

What passes is known exactly: a linear detector's score of an answer is normal, given whether the answer is right and
whether its cluster is large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln
from scipy.stats import norm

from anchorscope.detectors.card import Card
from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.crossfit import Labelled
from anchorscope.detectors.detector import About, FittedDetector
from anchorscope.detectors.drift import Moments
from anchorscope.detectors.fit import kept_for_promise
from anchorscope.detectors.inputs import Inputs
from anchorscope.detectors.linear import Linear
from anchorscope.detectors.thresholds import HeldOut, Promise

SIZES = np.arange(1, 13)  # of clusters, each as often as any other
LARGE = 9  # in clusters of 9 answers and more, right and wrong answers are harder to tell apart
CLUE = {(True, False): 4.0, (True, True): 3.4, (False, False): 0.0, (False, True): 1.5}  # by right and large, the mean
SHARED, OWN = 0.6, 0.8  # spread of the clue over clusters, and within one
MIXED = 3.0  # how much alike the shares of wrong answers of clusters are


def clustered_world(clusters: int, rng: np.random.Generator, rate: float) -> Labelled:
    """Answers of clusters. A share `rate` is wrong, in some clusters more; the answers of a cluster score alike."""
    sizes = rng.choice(SIZES, clusters)
    cluster = np.repeat(np.arange(clusters), sizes)
    right = rng.random(len(cluster)) > rng.beta(MIXED * rate, MIXED * (1 - rate), clusters)[cluster]
    large = (sizes >= LARGE)[cluster]
    clue = np.array([CLUE[key] for key in zip(right.tolist(), large.tolist(), strict=True)])
    clue += SHARED * rng.normal(size=clusters)[cluster] + OWN * rng.normal(size=len(cluster))
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


def shares_of_large(rate: float) -> dict[str, float]:
    """How often an answer is of a large cluster, by how it is drawn.

    `errors_passed`: a cluster, then one of its answers. `false_alarms`: a cluster that has right answers, then one of
    these. `all answers`: every answer alike. Given the draw, right answers are of large clusters as often as wrong
    ones.
    """
    large = SIZES >= LARGE
    alpha, beta = MIXED * rate, MIXED * (1 - rate)
    has_right = 1 - np.exp(betaln(alpha + SIZES, beta) - betaln(alpha, beta))
    weights = {"errors_passed": np.ones(len(SIZES)), "false_alarms": has_right, "all answers": SIZES}
    return {draw: float(weight[large].sum() / weight.sum()) for draw, weight in weights.items()}


def passed(detector: FittedDetector, limit: float, large: float) -> tuple[float, float]:
    """Which share of right and of wrong answers passes a threshold, where a share `large` is of large clusters."""
    assert isinstance(detector.fitted, Linear)
    weights = detector.fitted.numbers
    of_clue = weights["logprob_mean"] + weights["logprob_min"]
    others = [weights[name] for name in ("logprob_min", "logprob_sum", "log_tokens")]
    spread = math.sqrt(of_clue**2 * (SHARED**2 + OWN**2) + sum(weight**2 for weight in others))
    by_class = []
    for right in (True, False):
        means = {size: -(of_clue * CLUE[right, size] + detector.fitted.bias) for size in (False, True)}
        below = {size: float(norm.cdf((limit - mean) / spread)) for size, mean in means.items()}
        by_class.append((1 - large) * below[False] + large * below[True])
    return by_class[0], by_class[1]


def rate_of(promise: Promise, shares: tuple[float, float], base_rate: float) -> float:
    """The promised rate, P(flagged | right) or P(wrong | passed), from the shares of right and wrong that pass."""
    if promise.kind == "false_alarms":
        return 1 - shares[0]
    total = base_rate * shares[1] + (1 - base_rate) * shares[0]
    return base_rate * shares[1] / total if total else 0.0


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

    def add(self, promise: Promise, detector: FittedDetector, base_rate: float, large: Mapping[str, float]) -> None:
        """Count a detector that is moved to a base rate; `large` comes from `shares_of_large`."""
        first, moved = detector.score_threshold, detector.at(base_rate).score_threshold
        if first is not None:
            left = passed(detector, first, large[promise.kind])
            self.rates_if_left.append(rate_of(promise, left, base_rate))
        if moved is None:
            return
        shares, of_all = (passed(detector, moved, large[draw]) for draw in (promise.kind, "all answers"))
        self.given += 1
        self.rates.append(rate_of(promise, shares, base_rate))
        self.rates_of_all.append(rate_of(promise, of_all, base_rate))
        self.broken += self.rates[-1] > promise.at_most
        self.passed.append((1 - base_rate) * shares[0] + base_rate * shares[1])

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


def counted(samples: Labelled, flagged: NDArray[np.bool_]) -> dict[str, tuple[float, float]]:
    """By draw, which share of the right and of the wrong answers of a world passes: counted, to check `passed`."""
    total, right = samples.clusters, samples.right
    all_of, right_of = (np.bincount(total, weights) for weights in (None, right))
    draws = {
        "errors_passed": 1 / all_of[total],
        "false_alarms": 1 / np.maximum(right_of, 1)[total],
        "all answers": np.ones(len(total)),
    }
    return {
        draw: (
            float(np.average(~flagged[right], weights=weight[right])),
            float(np.average(~flagged[~right], weights=weight[~right])),
        )
        for draw, weight in draws.items()
    }
