"""Thresholds that keep a promise with a stated confidence, chosen on samples that took no part in fitting.

A detector scores each answer, higher = more likely wrong. An answer is flagged when its score is above the threshold,
else it passes. All bounds hold for finite samples and for scores of any distribution.

False alarms: of n right scores, the (k + 1)-th largest as the threshold has a false-alarm rate that is at most a
Beta(k + 1, n - k) value (Wilks 1941), so it is above α with a probability of at most P(Binomial(n, α) ≤ k).

Errors among passed: b·w / (b·w + (1 - b)·r) ≤ α means w ≤ c·r, with the base rate b, w = P(pass | wrong),
r = P(pass | right) and c = α(1 - b) / (b(1 - α)). Candidates are order statistics t of the n right scores, of ranks k
set in advance; N of m wrong scores are at most t. Theorem: whatever the distributions, any candidate with N ≤ n(k) may
be chosen, and it breaks the promise with a probability of at most P(for some k: Z(k) ≤ n(k)); there
Z(k) = #{j: W(j) ≤ c·U(k)}, and W and U are order statistics of m and of n uniform values.
Proof: write the scores as quantiles of such values. Then r ≥ U(k), and N = #{W(j) ≤ w}. Where the promise is broken,
w > c·r ≥ c·U(k), so N ≥ Z(k). The law of all Z(k) together depends on n, m and c alone, so it can be drawn in advance;
n(k) is set so that each candidate is as unlikely as any other, and all together have δ. Candidates share their noise,
so this costs less than to divide δ by their number. No order of testing is assumed, so answers that are confidently
wrong, which spoil the lowest candidates, do not spoil the others (Learn then Test: Angelopoulos et al. 2021).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import bdtr, betaincinv

from anchorscope.errors import ProbeError, StudyError, shown

FEWEST_OF_GROUP = 10  # right answers of a group whose false alarms are told
STEPS = 20  # candidates for errors among passed: each passes a twentieth of the right answers more
DRAWS = 19_999  # of all Z(k) together
NODES = 64  # values of r that stand for its Beta law

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_WORDS = {"false_alarms": "false alarms", "errors_passed": "errors among passed answers"}
_PROMISE = re.compile(r"(\d+\.?\d*|\.\d+)\s*%\s*(?:(false alarms?)|errors?(?: among passed)?)", re.IGNORECASE)


class Promise(NamedTuple):
    """A promise about the error rate of a threshold."""

    kind: Literal["false_alarms", "errors_passed"]
    """`false_alarms`: P(flagged | right). `errors_passed`: P(wrong | passed), at a stated base rate."""
    at_most: float
    """The largest rate that keeps the promise, between 0 and 1."""
    delta: float = 0.1
    """Probability, over draws of the calibration samples, that the promise is broken."""

    def __str__(self) -> str:
        return f"at most {_percent(self.at_most)} {_WORDS[self.kind]}, with {_percent(1 - self.delta)} confidence"

    @property
    def drawn(self) -> str:
        """The answers to which the rate applies, in words."""
        group, answer = (" that has right answers", "right answers") if self.kind == "false_alarms" else ("", "answers")
        return (
            "The promised rate is that of an answer drawn in two steps: first a cluster of related questions (the same "
            f"question, subject or answer){group}, then one of its {answer}. The rate over all answers is not "
            "promised: it differs if large clusters are scored differently from small ones."
        )


@dataclass(frozen=True)
class Unflagged:
    """The answers that a detector does not flag, at a base rate."""

    share: float
    """Share of all answers that are not flagged."""
    wrong: tuple[float, float, float]
    """Share of wrong answers among these: the estimate and its 95 % interval."""
    base_rate: float
    """Share of wrong answers among all that both numbers assume."""

    def __str__(self) -> str:
        share, low, high = (100 * number for number in self.wrong)
        return (
            f"Where {_percent_of(self.base_rate)} % of answers are wrong, {100 * self.share:.0f} % of answers are not "
            f"flagged, and {share:.0f} % of these are wrong ({low:.0f} to {high:.0f} %)"
        )


@dataclass(frozen=True)
class WorstGroup:
    """The group of questions whose right answers are flagged most often. A promise is about all groups together."""

    name: str
    """The group: a relation, or a dataset."""
    false_alarms: tuple[float, float, float]
    """Share of its right answers that are flagged, with an interval of at least 95 % for the worst of all groups."""
    right: int
    """Number of its right answers, one per cluster."""
    groups: int
    """Number of groups with enough right answers, among which it is the worst."""

    def __str__(self) -> str:
        share, low, high = (100 * number for number in self.false_alarms)
        return (
            f"Of {self.groups} groups with at least {FEWEST_OF_GROUP} held-out right answers, {self.name} has the most "
            f"false alarms: {share:.0f} % of {self.right} ({low:.0f} to {high:.0f} %)"
        )


class Threshold(NamedTuple):
    """The score above which an answer is flagged, and what is known about it."""

    value: float | None
    """The threshold, or None if none keeps the promise with this much data. Infinite if nothing need be flagged."""
    promise: Promise
    """Promise that the threshold keeps."""
    right: int
    """Number of right answers on which it was chosen, one per cluster."""
    wrong: int
    """Number of wrong answers on which it was chosen, one per cluster."""
    bound: float
    """The least rate that could have been promised at this threshold with that confidence; for None, at the candidate
    that came closest. It is at most what was promised exactly when there is a threshold."""
    passed: float | None
    """Share of all answers that pass at the base rate, estimated; None without a threshold or without a class."""
    reason: str = ""
    """Reason why there is no threshold; empty otherwise."""
    errors: tuple[float, float, float] | None = None
    """Share of wrong answers among those that pass, at the base rate: the estimate and its 95 % interval."""
    base_rate: float | None = None
    """The share of wrong answers that `passed` and `errors` assume, and at which errors are promised."""

    @property
    def unflagged(self) -> Unflagged | None:
        """`passed` and `errors` together; None where one of them is not known."""
        if self.passed is None or self.errors is None or self.base_rate is None:
            return None
        return Unflagged(self.passed, self.errors, self.base_rate)


@dataclass(frozen=True)
class HeldOut:
    """Labelled answers that took no part in fitting: thresholds are chosen on them."""

    scores: NDArray[np.floating[Any]]
    """(sample): higher = more likely wrong"""
    right: Bools
    """(sample): whether the answer is right"""
    clusters: Ints
    """(sample): what belongs together"""
    seed: int = 0
    """The seed that draws answers of clusters."""
    group: Ints | None = None
    """(sample): number of the group in `groups`; None where there are no groups"""
    groups: Sequence[str] = ()
    """Names of the groups."""

    def threshold(self, promise: Promise, base_rate: float) -> Threshold:
        """The threshold that keeps a promise at a base rate."""
        return choose_threshold(promise, self.scores, self.right, self.clusters, base_rate, self.seed)

    def unflagged(self, value: float, base_rate: float) -> Unflagged | None:
        """Answers whose score is at most `value`, counted on one answer of each cluster; None where there are none."""
        rows = _one_each(np.arange(len(self.scores)), self.clusters, np.random.default_rng(self.seed))
        score, is_right = np.asarray(self.scores, np.float64)[rows], self.right[rows]
        return _unflagged(score[is_right], score[~is_right], value, base_rate)

    def worst_group(self, value: float) -> WorstGroup | None:
        """The group with the most false alarms at a threshold; None where fewer than two have enough right answers.

        One right answer of each cluster of a group counts, as for a promise of false alarms. The interval is exact for
        these (Clopper–Pearson) and divides its error by the number of groups, so it holds for the one that was picked.
        """
        if self.group is None:
            return None
        flagged, random = np.asarray(self.scores) > value, np.random.default_rng(self.seed)
        members = {
            name: _one_each(np.flatnonzero(self.right & (self.group == number)), self.clusters, random)
            for number, name in enumerate(self.groups)
        }
        counts = {name: (int(flagged[own].sum()), len(own)) for name, own in members.items()}
        enough = {name: each for name, each in counts.items() if each[1] >= FEWEST_OF_GROUP}
        if len(enough) < 2:
            return None
        name = max(enough, key=lambda each: enough[each][0] / enough[each][1])
        count, total = enough[name]
        between = _clopper_pearson(count, total, 0.05 / len(enough))
        return WorstGroup(name, (count / total, *between), total, len(enough))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """By name."""
        group = {} if self.group is None else {"group": self.group}
        return {"scores": self.scores, "right": self.right, "clusters": self.clusters, **group}

    @classmethod
    def load(cls, tensors: Mapping[str, NDArray[Any]], seed: int, groups: Sequence[str] = ()) -> HeldOut:
        """From what `tensors` gave."""
        scores, right, clusters = tensors["scores"], tensors["right"], tensors["clusters"]
        if scores.ndim != 1 or not scores.shape == right.shape == clusters.shape or right.dtype != np.bool_:
            raise ValueError("the held-out answers do not have one score, label and cluster each")
        group = tensors.get("group")
        if group is not None and (
            group.shape != scores.shape or group.dtype.kind != "i" or not np.isin(group, np.arange(len(groups))).all()
        ):
            raise ValueError("the held-out answers do not have one group each")
        return cls(scores, right, clusters, seed, group, groups)


def parse_promise(text: str, delta: float = 0.1) -> Promise:
    """`1% false alarms` or `5% errors among passed`, for short `5% errors`."""
    match = _PROMISE.fullmatch(text.strip())
    if match is None:
        raise StudyError(f"{shown(text)} is not a promise", "Write '1% false alarms' or '5% errors among passed'.")
    promise = Promise("false_alarms" if match[2] else "errors_passed", float(match[1]) / 100, delta)
    _check_promise(promise)
    return promise


def choose_threshold(
    promise: Promise, scores: NDArray[Any], right: NDArray[Any], clusters: NDArray[Any], base_rate: float, seed: int = 0
) -> Threshold:
    """The threshold that keeps a promise and lets most answers pass, on samples that took no part in fitting.

    Samples of a cluster are dependent, clusters are not. For false alarms one right answer of each cluster is drawn:
    these are i.i.d., since which one is drawn does not depend on scores. One answer per cluster and class would be
    i.i.d. within each class too, but an answer of one class would depend on that of the other, and the theorem needs
    the classes to be independent. So for errors among passed each cluster gives one answer of either class. The rates
    are thus of an answer drawn so: a cluster, then one of its answers. Those of all answers differ where large
    clusters are scored differently. The base rate, the share of wrong answers among all, is taken as known.
    """
    score, is_right, cluster = _checked(promise, scores, right, clusters, base_rate)
    random = np.random.default_rng(seed)
    if promise.kind == "false_alarms":
        rows = np.concatenate(
            [_one_each(np.flatnonzero(is_right == label), cluster, random) for label in (True, False)]
        )
    else:
        rows = _one_each(np.arange(len(score)), cluster, random)
    of_right, of_wrong = np.sort(score[rows][is_right[rows]]), np.sort(score[rows][~is_right[rows]])
    choose = _false_alarms if promise.kind == "false_alarms" else _errors_passed
    value, bound, reason = choose(promise, of_right, of_wrong, base_rate)
    found = None if value is None else _unflagged(of_right, of_wrong, value, base_rate)
    passed, errors = (found.share, found.wrong) if found is not None else (None, None)
    return Threshold(value, promise, len(of_right), len(of_wrong), bound, passed, reason, errors, base_rate)


def _unflagged(right: Floats, wrong: Floats, value: float, base_rate: float) -> Unflagged | None:
    """What is not flagged, from scores of right and of wrong answers; None without a class, or if all are flagged."""
    if not len(right) or not len(wrong):
        return None
    counts = [(int((of_class <= value).sum()), len(of_class)) for of_class in (right, wrong)]
    errors = errors_among_passed(counts[0], counts[1], base_rate)
    share = (1 - base_rate) * counts[0][0] / counts[0][1] + base_rate * counts[1][0] / counts[1][1]
    return None if errors is None else Unflagged(share, errors, base_rate)


def moved_threshold(threshold: Threshold, base_rate: float, held_out: HeldOut | None) -> Threshold:
    """The threshold for the same promise at another base rate, chosen again on the same answers.

    False alarms do not depend on the base rate, so their threshold keeps its value. Without the answers a promise of
    errors is withdrawn.
    """
    if held_out is not None:
        return held_out.threshold(threshold.promise, base_rate)
    if threshold.promise.kind == "false_alarms":
        return threshold._replace(passed=None, errors=None, base_rate=base_rate)
    then = "another base rate" if threshold.base_rate is None else f"a base rate of {_percent(threshold.base_rate)}"
    reason = (
        f"{threshold.promise}, was promised at {then} and is withdrawn at {_percent(base_rate)}, because the answers "
        "it was chosen on were not saved with this detector. Fit the detector again (anchorscope detect fit), or "
        "recalibrate it with 100 labelled answers (anchorscope detect check)"
    )
    return threshold._replace(value=None, bound=1.0, passed=None, reason=reason, errors=None)


def errors_among_passed(
    right: tuple[int, int], wrong: tuple[int, int], base_rate: float
) -> tuple[float, float, float] | None:
    """The share of wrong answers among those that pass: an estimate and its 95 % interval; None where nothing passes.

    `right` and `wrong`: how many of how many pass. The interval joins two exact ones (Clopper–Pearson, 97.5 % each), so
    it holds with at least 95 %.
    """
    if right[0] + wrong[0] == 0:
        return None
    low, high = ([_clopper_pearson(count, total, 0.025)[end] for count, total in (right, wrong)] for end in (0, 1))
    shares = [count / total for count, total in (right, wrong)]

    def share(right_passed: float, wrong_passed: float) -> float:
        total = base_rate * wrong_passed + (1 - base_rate) * right_passed
        return base_rate * wrong_passed / total if total else 1.0

    return share(*shares), share(high[0], low[1]), share(low[0], high[1])


def _clopper_pearson(count: int, total: int, alpha: float) -> tuple[float, float]:
    """The exact two-sided interval of a share."""
    low = float(betaincinv(count, total - count + 1, alpha / 2)) if count else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - alpha / 2)) if count < total else 1.0
    return low, high


def rates(scores: NDArray[Any], right: NDArray[Any], threshold: float, base_rate: float) -> tuple[float, float]:
    """False alarms and errors among passed of a threshold on some samples; nan where there is none to count."""
    flagged, is_right = np.asarray(scores) > threshold, np.asarray(right, np.bool_)
    right_passed, wrong_passed = (
        float((~flagged[members]).mean()) if members.any() else math.nan for members in (is_right, ~is_right)
    )
    passed = base_rate * wrong_passed + (1 - base_rate) * right_passed
    return 1 - right_passed, base_rate * wrong_passed / passed if passed else math.nan


def _false_alarms(promise: Promise, right: Floats, wrong: Floats, base_rate: float) -> tuple[float | None, float, str]:
    """The threshold, its bound and why there is none, from ascending scores."""
    count = len(right)
    chances = bdtr(np.arange(count, dtype=np.float64), count, promise.at_most)
    above = int((chances <= promise.delta).sum()) - 1
    if above < 0:
        needed = max(count + 1, _needed(promise.at_most, promise.delta))
        return (
            None,
            _upper_rate(0, count, promise.delta),
            f"{promise}: needs {needed:,} right answers, but there are {count:,}",
        )
    # Right scores are quantiles of uniform values u, so P(score ≤ t) ≥ u(rank of t), with equality where there are no
    # ties. With ties fewer than `above` may be flagged, as only scores above t are: the rate can only be lower.
    return float(right[count - 1 - above]), _upper_rate(above, count, promise.delta), ""


def _errors_passed(promise: Promise, right: Floats, wrong: Floats, base_rate: float) -> tuple[float | None, float, str]:
    """The threshold, its bound and why there is none, from ascending scores."""
    if base_rate <= promise.at_most:  # kept without a detector
        return math.inf, base_rate, ""
    ratio = promise.at_most * (1 - base_rate) / (base_rate * (1 - promise.at_most))
    needed = _needed(ratio, promise.delta)
    lacking = f"{promise}: needs at least {needed:,} wrong answers at a base rate of {_percent(base_rate)}"
    if not len(right) or not len(wrong):
        return None, 1.0, f"{lacking} and some right ones, but there are {len(wrong):,} wrong and {len(right):,} right"
    ranks, nodes, level = _candidates(len(right), len(wrong), ratio, promise.delta)
    thresholds = right[ranks - 1]
    counts = np.searchsorted(wrong, thresholds, side="right")
    chances = _chances(counts, len(wrong), ratio, nodes)
    shown = np.flatnonzero(chances < level)
    last = int(shown[-1]) if len(shown) else int(chances.argmin())
    bound = _error_rate(_upper_ratio(int(counts[last]), len(wrong), nodes[last], level), base_rate)
    if len(shown):
        return float(thresholds[last]), bound, ""
    if len(wrong) < needed:  # then even a detector that passes right answers alone could not show it
        return None, bound, f"{lacking}, not {len(wrong):,}"
    return None, bound, f"{promise}: the detector is too weak, or samples too few; the best bound is {_percent(bound)}"


@lru_cache(maxsize=64)
def _candidates(right: int, wrong: int, ratio: float, delta: float) -> tuple[Ints, Floats, float]:
    """Ranks of the candidates, (candidate, node) values of r, and how unlikely a count must be for its candidate.

    That is the δ quantile of the least likely count in draws of all Z(k) together. It counts the data as one more
    draw, so the promise holds for any number of draws.
    """
    ranks = np.unique(-(-np.arange(1, STEPS + 1) * right // STEPS))
    nodes = betaincinv(ranks[:, None], right - ranks[:, None] + 1.0, (np.arange(NODES) + 0.5) / NODES)
    random = np.random.default_rng(0)
    top = wrong if delta > 0.5 else math.ceil(ratio * wrong)  # at least the median: no larger count is unlikely
    share, passed, least = np.zeros(DRAWS), np.zeros(DRAWS, np.int64), np.ones(DRAWS)
    for rank, gap, node in zip(ranks, np.diff(ranks, prepend=0), nodes, strict=True):
        # 1. from one order statistic of n uniform values to the next, and how many of m others are in between
        onward = share + (1 - share) * random.beta(gap, right - rank + 1, DRAWS)
        passed += random.binomial(wrong - passed, np.clip(ratio * (onward - share) / (1 - ratio * share), 0, 1))
        share = onward
        # 2. how likely so few are
        chances = np.append(_chances(np.arange(top + 1), wrong, ratio, node), 1.0)
        least = np.minimum(least, chances[np.minimum(passed, top + 1)])
    # 3. a count is to be less likely than this many draws; between two counts, so that rounding does not matter
    place = int(delta * (DRAWS + 1))
    too_likely = float(np.sort(least)[place - 1]) if place else 0.0
    unlikely = least[least < too_likely]
    level = math.sqrt(too_likely * float(unlikely.max())) if len(unlikely) else too_likely * (1 - 1e-9)
    return ranks, nodes, min(level, delta)


def _chances(counts: Ints, wrong: int, ratio: float, nodes: Floats) -> Floats:
    """P(Z(k) ≤ count) for each count; `nodes` are (node) or (count, node)."""
    chance = bdtr(np.asarray(counts, np.float64)[:, None], wrong, np.minimum(1.0, ratio * nodes))
    mean: Floats = chance.mean(axis=-1)
    return mean


def _upper_ratio(count: int, wrong: int, nodes: Floats, level: float) -> float:
    """The least c for which a candidate would be kept; infinite where there is none."""
    if count == wrong or level == 0:
        return math.inf

    def excess(ratio: float) -> float:
        return float(_chances(np.array([count]), wrong, ratio, nodes)[0]) - level

    return float(brentq(excess, 0.0, 1 / nodes.min(), xtol=1e-12))


def _error_rate(ratio: float, base_rate: float) -> float:
    """P(wrong | passed) where w = ratio · r."""
    return 1.0 if math.isinf(ratio) else base_rate * ratio / (base_rate * ratio + 1 - base_rate)


def _upper_rate(above: int, count: int, delta: float) -> float:
    """The upper end of the one-sided Clopper–Pearson interval."""
    return float(betaincinv(above + 1.0, count - above, 1 - delta)) if count else 1.0


def _needed(rate: float, delta: float) -> int:
    """How many samples show, when none of them is a case, that cases are no more frequent than `rate`."""
    return math.ceil(math.log(delta) / math.log1p(-rate))


def _one_each(rows: NDArray[np.intp], clusters: NDArray[Any], random: np.random.Generator) -> NDArray[np.intp]:
    """One of the rows of each cluster, drawn at random."""
    shuffled = random.permutation(rows)
    return shuffled[np.unique(clusters[shuffled], return_index=True)[1]]


def _checked(
    promise: Promise, scores: NDArray[Any], right: NDArray[Any], clusters: NDArray[Any], base_rate: float
) -> tuple[Floats, Bools, NDArray[Any]]:
    _check_promise(promise)
    score, is_right, cluster = np.asarray(scores, np.float64), np.asarray(right, np.bool_), np.asarray(clusters)
    if score.ndim != 1 or not score.shape == is_right.shape == cluster.shape:
        raise ProbeError(
            f"scores {score.shape}, labels {is_right.shape} and clusters {cluster.shape} differ in shape",
            "Give one of each per sample.",
        )
    if np.isnan(score).any():
        raise ProbeError(f"{int(np.isnan(score).sum()):,} scores are not a number", "Leave these samples out.")
    if not 0 < base_rate < 1:
        raise ProbeError(f"base_rate must be between 0 and 1, not {base_rate:g}", "Give the share of wrong answers.")
    return score, is_right, cluster


def _check_promise(promise: Promise) -> None:
    if promise.kind not in _WORDS:
        raise StudyError(f"{shown(promise.kind)} cannot be promised", f"Choose from: {', '.join(_WORDS)}.")
    if not 0 < promise.at_most < 1:
        raise StudyError(
            f"{_percent(promise.at_most)} cannot be promised", "Promise more than 0 % and less than 100 %."
        )
    if not 0 < promise.delta < 1:
        raise StudyError(
            f"delta must be between 0 and 1, not {promise.delta:g}", "Choose a probability of failure, such as 0.1."
        )


def _percent_of(share: float) -> str:
    """A share in percent, with a digit behind the point where the whole number would be 0 or 100."""
    return f"{100 * share:.0f}" if 0.005 <= share < 0.995 else f"{100 * share:.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"
