"""How well scores rank wrong words: over all words, within a response, per response, and as spans; with nulls.

A response's topic and difficulty raise or lower all of its words together, so they help over all words but not within a
response. The permutation null keeps each response's spans and moves them along it by a random number of words, so it
tells what the same fits make of labels that stand in the wrong place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import rankdata

from anchorscope.pathways.intervals import Auroc, Estimate, FloatArray, estimate, resample
from anchorscope.progress import Progress, silent
from anchorscope.words.detector import judged
from anchorscope.words.detectors import FOLDS, RECIPES, Bools, Floats, Scores, WordData, folds_of, score
from anchorscope.words.features import FEATURES, FORM
from anchorscope.words.record import Judged

RESAMPLES = 500
NULLS = 20
ADDS = (("numbers", "overlap"), ("rivals", "numbers"), ("together", "rivals"), ("live", "live_numbers"))
"""Detectors and the rivals that each is compared with, on the same words."""
STEPS = 64  # candidates for the threshold of spans


class Measured(NamedTuple):
    """How well one detector does, each number with its interval."""

    auroc: Estimate
    """AUROC over words."""
    within: Estimate
    """Mean over responses of the AUROC over the words of one response."""
    response: Estimate
    """AUROC over responses: its highest word tells whether a response has a wrong word."""
    precision: Estimate
    """Share of the characters of flagged words that are in wrong spans."""
    recall: Estimate
    """Share of the characters in wrong spans that are flagged."""
    f1: Estimate
    """Harmonic mean of precision and recall."""


class Difference(NamedTuple):
    """A detector minus another one, on the same words and resamples."""

    auroc: Estimate
    within: Estimate


@dataclass(frozen=True, eq=False)
class Ruler:
    """Measures scores of the same words, with the same resamples of clusters."""

    data: WordData
    """The words."""
    seed: int = 0
    """Seed of folds and resamples."""
    only: Bools | None = None
    """(word): measure on these judged words alone; None for all"""

    @property
    def rows(self) -> int:
        """Number of judged words that are measured on."""
        return len(self._rows)

    @cached_property
    def _rows(self) -> NDArray[np.intp]:
        judged = self.data.judged
        return np.flatnonzero(judged if self.only is None else judged & self.only)

    @cached_property
    def _weights(self) -> Floats:
        """(1 + resample, word)"""
        weights: Floats = resample(self.data.cluster, 1, RESAMPLES, self.seed).samples
        return weights

    @cached_property
    def _auroc(self) -> Auroc:
        return Auroc(self.data.wrong[self._rows], self._weights[:, self._rows])

    @cached_property
    def _members(self) -> list[NDArray[np.intp]]:
        """The judged words of each response in which some are wrong and some are right."""
        response, wrong = self.data.response[self._rows], self.data.wrong[self._rows]
        ends = np.flatnonzero(np.diff(response)) + 1
        pieces = np.split(np.arange(len(self._rows)), ends)
        return [self._rows[piece] for piece in pieces if 0 < wrong[piece].sum() < len(piece)]

    @property
    def mixed(self) -> int:
        """Number of responses that have judged words of both kinds."""
        return len(self._members)

    @cached_property
    def _firsts(self) -> NDArray[np.intp]:
        """The first word of each response."""
        return np.unique(self.data.response, return_index=True)[1]

    @cached_property
    def _fold(self) -> NDArray[np.int8]:
        """(word): the fold it is tested in"""
        return folds_of(self.data, self.seed)

    def auroc(self, logits: Floats) -> FloatArray:
        """(1 + resample): AUROC over words"""
        return self._auroc(logits[self._rows, None])[:, 0]

    def within(self, logits: Floats) -> FloatArray:
        """(1 + resample): mean AUROC within a response"""
        areas = np.array([_area(logits[own], self.data.wrong[own]) for own in self._members])
        weights = self._weights[:, [own[0] for own in self._members]]
        return _ratio(weights @ areas, weights.sum(axis=1))

    def response(self, logits: Floats) -> FloatArray:
        """(1 + resample): AUROC over responses by their highest judged word"""
        highest = np.full(len(self._firsts), -np.inf, np.float32)
        np.maximum.at(highest, self.data.response[self._rows], logits[self._rows])
        wrong = np.zeros(len(self._firsts), bool)
        np.logical_or.at(wrong, self.data.response[self._rows], self.data.wrong[self._rows])
        some = np.flatnonzero(np.isfinite(highest))
        if not 0 < wrong[some].sum() < len(some):
            return np.full(1 + RESAMPLES, np.nan)
        weights = self._weights[:, self._firsts[some]]
        return Auroc(wrong[some], weights)(highest[some, None])[:, 0]

    def spans(self, logits: Floats) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(1 + resample) each: precision, recall and F1 of flagged characters.

        Overlap counts by characters over all responses together, as LettuceDetect counts it, with the spans of several
        people joined. Words that nobody judged do not count. The threshold of each fold is the one with the best F1 on
        the other folds.
        """
        flagged = self._flagged(logits)
        sizes = np.array([end - start for text in self.data.texts for start, end in text.words], np.float64)
        rows, wrong = self._rows, self.data.wrong[self._rows]
        counted = [
            self._weights[:, rows].astype(np.float64) @ (sizes[rows] * mask)
            for mask in (flagged[rows] & wrong, flagged[rows], wrong)
        ]
        hit, said, there = counted
        return _ratio(hit, said), _ratio(hit, there), _ratio(2 * hit, said + there)

    def _flagged(self, logits: Floats) -> Bools:
        """(word): above the threshold of its fold"""
        fold, flagged = self._fold, np.zeros(len(logits), bool)
        for number in range(FOLDS):
            others = self._rows[fold[self._rows] != number]
            limit = _best_threshold(logits[others], self.data.wrong[others])
            flagged |= (fold == number) & (logits > limit)
        return flagged

    def measure(self, logits: Floats) -> Measured:
        """All numbers of one detector."""
        series = (self.auroc(logits), self.within(logits), self.response(logits), *self.spans(logits))
        return Measured(*(estimate(one) for one in series))

    def difference(self, logits: Floats, other: Floats) -> Difference:
        """One detector minus another."""
        return Difference(*(estimate(measure(logits) - measure(other)) for measure in (self.auroc, self.within)))


class Null(NamedTuple):
    """What a detector makes of labels that were moved along their responses: mean and largest of all draws."""

    within: tuple[float, float]
    """Of the AUROC within a response."""
    auroc: tuple[float, float]
    """Of the AUROC over words: how often the words of a response are wrong stays, so this can be above one half."""


def nulls(
    data: WordData,
    names: Sequence[str] = tuple(RECIPES),
    draws: int = NULLS,
    seed: int = 0,
    progress: Progress = silent,
) -> dict[str, Null]:
    """Fit detectors again on labels that were moved along their responses, and measure them on these."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with progress("permutation null", draws) as advance:
        for draw in range(draws):
            moved = data.with_labels(moved_labels(data, np.random.default_rng([seed, 3, draw])))
            ruler = Ruler(moved, seed)
            for name, one in score(moved, names, seed).items():
                found[name].append((float(ruler.within(one.logits)[0]), float(ruler.auroc(one.logits)[0])))
            advance(1)
    return {
        name: Null(*((float(np.mean(values)), max(values)) for values in zip(*pairs, strict=True)))
        for name, pairs in found.items()
    }


def moved_labels(data: WordData, random: np.random.Generator) -> NDArray[np.int8]:
    """(word): labels of each response, moved around it by a random number of words: runs of wrong words stay whole."""
    labels = data.labels.copy()
    for own in np.split(np.arange(len(labels)), np.flatnonzero(np.diff(data.response)) + 1):
        labels[own] = np.roll(labels[own], random.integers(len(own)))
    return labels


def names_and_numbers(data: WordData) -> Bools:
    """(word): whether it has a digit, or a capital inside a sentence"""
    form = data.numbers["form"]
    mask: Bools = (form[:, FORM.index("digit")] > 0) | (form[:, FORM.index("capital_inside")] > 0)
    return mask


def compare(scores: Mapping[str, Scores], ruler: Ruler) -> dict[str, Measured]:
    """All numbers of every detector."""
    return {name: ruler.measure(one.logits) for name, one in scores.items()}


def additions(
    scores: Mapping[str, Scores], ruler: Ruler, pairs: Sequence[tuple[str, str]] = ADDS
) -> dict[tuple[str, str], Difference]:
    """What each detector has over its rival."""
    return {
        (one, rival): ruler.difference(scores[one].logits, scores[rival].logits)
        for one, rival in pairs
        if one in scores and rival in scores
    }


def judged_texts(data: WordData, logits: Floats) -> list[Judged]:
    """Every response with its out-of-fold probabilities, flagged above the threshold with the best F1."""
    lost = data.numbers["lost"][:, FEATURES["lost"].index("lost_no_passage")]
    threshold = float(expit(_best_threshold(logits[data.judged], data.wrong[data.judged])))
    ends = np.flatnonzero(np.diff(data.response)) + 1
    pieces = zip(data.texts, np.split(logits, ends), np.split(lost, ends), strict=True)
    return [judged(text, own, nats, threshold) for text, own, nats in pieces]


def _area(logits: Floats, wrong: Bools) -> float:
    """AUROC of the words of one response."""
    ranks, count = rankdata(logits), int(wrong.sum())
    return float((ranks[wrong].sum() - count * (count + 1) / 2) / (count * (len(wrong) - count)))


def _best_threshold(logits: Floats, wrong: Bools) -> float:
    """The one of some thresholds with the best F1 over words; the lowest flags every word."""
    candidates = np.array([-np.inf, *np.quantile(logits, np.linspace(0, 1, STEPS, endpoint=False))])
    hits = np.array([[(wrong & (logits > one)).sum(), (logits > one).sum()] for one in candidates])
    return float(candidates[(2 * hits[:, 0] / (hits[:, 1] + wrong.sum())).argmax()])


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    ratio: FloatArray = np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0)
    return ratio
