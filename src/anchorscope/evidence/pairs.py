"""(Right, wrong) pairs of answers to one and the same question: how often scores rank them right.

What is the same for all answers to a question, its difficulty above all, is the same on both sides of a pair. It can
neither help nor hurt.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from anchorscope.evidence.means import BoolArray, IntArray, weighted_mean
from anchorscope.pathways.intervals import FloatArray, Resamples, average

FOLDS = 5  # of the questions: scores of several features are weighed on the other folds
SWEEPS = 1000  # of balancing, at most
RIDGE = 1.0  # questions that say nothing, beside those that are there


class Pairs:
    """The pairs of some answers, and the questions that have any."""

    def __init__(self, question: IntArray, correct: BoolArray) -> None:
        right, wrong, of = [], [], []
        for sample in np.unique(question):
            mine = np.flatnonzero(question == sample)
            good, bad = mine[correct[mine]], mine[~correct[mine]]
            if len(good) and len(bad):
                right.append(np.repeat(good, len(bad)))
                wrong.append(np.tile(bad, len(good)))
                of.append(sample)
        self.questions: IntArray = np.array(of, dtype=np.int64)
        """(question): those that have both kinds"""
        self.right: IntArray = np.concatenate(right) if right else np.empty(0, np.int64)
        self.wrong: IntArray = np.concatenate(wrong) if wrong else np.empty(0, np.int64)
        sizes = np.array([len(rows) for rows in right], dtype=np.int64)
        self.place: IntArray = np.repeat(np.arange(len(of)), sizes)
        """(pair): its question, by the place among `questions`"""
        self.weight: FloatArray = np.repeat(1 / np.maximum(sizes, 1), sizes)
        """(pair): a question's pairs weigh one together"""
        self._share = np.zeros((len(of), len(self.right)), np.float32)
        self._share[self.place, np.arange(len(self.right))] = self.weight

    def won(self, scores: FloatArray) -> FloatArray:
        """(question, layer): the share of its pairs that scores (answer, layer) rank right; ties one half."""
        ahead = scores[self.right] - scores[self.wrong]
        won: FloatArray = self._share @ ((ahead > 0) + 0.5 * (ahead == 0)).astype(np.float32)
        return won

    def share(self, scores: FloatArray, drawn: Resamples) -> FloatArray:
        """(1 + resample, layer): W, the mean over questions of `won`; from (repeat, answer, layer)."""
        of_question = self._share.sum(axis=1)  # 1, unless pairs are balanced
        weights = drawn.samples[:, self.questions] * of_question
        by_repeat = np.stack([weighted_mean(self.won(repeat) / of_question[:, None], weights) for repeat in scores])
        return average(by_repeat, drawn.repeats.T[:, :, None]) if len(scores) > 1 else by_repeat[0]

    def balanced(self, strings: IntArray) -> Pairs:
        """The same pairs, weighted such that every string (answer) counts as often right as wrong.

        A score of the string alone then has a mean lead of 0. Only pairs from which a chain of pairs leads back to the
        same string can be weighted so; questions without any are left out. By Osborne's balancing of the matrix whose
        entries are the weights of pairs, from the wrong string to the right one.
        """
        names, string = np.unique(strings, return_inverse=True)
        good, bad = string[self.right], string[self.wrong]
        graph = coo_array((np.ones(len(good)), (bad, good)), shape=(len(names),) * 2)
        part = connected_components(graph, connection="strong")[1]
        kept = (part[good] == part[bad]) & (good != bad)
        scale = np.ones(len(names))
        for _ in range(SWEEPS):
            weight = self.weight * kept * scale[bad] / scale[good]
            out, into = (np.bincount(side, weight, len(names)) for side in (bad, good))
            there = (out > 0) & (into > 0)
            step = np.ones(len(names))
            step[there] = np.sqrt(into[there] / out[there])
            scale *= np.sqrt(step)  # damped: all strings move at once
            if np.abs(np.log(step)).max(initial=0) < 1e-6:
                break
        return self._some(kept, self.weight * scale[bad] / scale[good])

    def _some(self, kept: BoolArray, weight: FloatArray) -> Pairs:
        """Some of the pairs (pair), with other weights. A question weighs what its pairs do; the mean is 1."""
        some = copy(self)
        there, some.place = np.unique(self.place[kept], return_inverse=True)
        some.questions, some.right, some.wrong = self.questions[there], self.right[kept], self.wrong[kept]
        some.weight = weight[kept] * len(there) / max(weight[kept].sum(), 1e-300)
        some._share = np.zeros((len(there), len(some.right)), np.float32)
        some._share[some.place, np.arange(len(some.right))] = some.weight
        return some

    def weighed(self, features: FloatArray, clusters: IntArray, seed: int) -> FloatArray:
        """(answer): several features (answer, feature) in one score, which ranks right above wrong.

        How much each feature counts is fitted on the pairs of other questions: questions are dealt to folds, those of
        one cluster (answer) together.
        """
        of_question = clusters[self.right[np.unique(self.place, return_index=True)[1]]]
        names, cluster = np.unique(of_question, return_inverse=True)
        fold = np.random.default_rng([seed, 0xFA1]).permutation(np.arange(len(names)) % FOLDS)[cluster]
        ahead = (features[self.right] - features[self.wrong]).astype(np.float64)
        score = np.zeros(len(features))
        for number in range(FOLDS):
            fitted = fold[self.place] != number
            weight = rank_weights(ahead[fitted], self.weight[fitted])
            mine = np.unique(np.concatenate([side[~fitted] for side in (self.right, self.wrong)]))
            score[mine] = features[mine] @ weight
        return score


def rank_weights(ahead: FloatArray, weight: FloatArray) -> FloatArray:
    """(feature): by how much each feature counts, from what right answers have ahead of wrong ones, (pair, feature).

    The logistic regression of pairs, without an intercept, each feature in units of its own spread; by Newton's method.
    """
    spread = np.sqrt(np.average(ahead**2, axis=0, weights=weight)) if len(ahead) else np.zeros(ahead.shape[1])
    scale = np.divide(1, spread, out=np.zeros(len(spread)), where=spread > 1e-9)
    z, at = ahead * scale, np.zeros(len(scale))
    for _ in range(50):
        lost = expit(-(z @ at))
        slope = RIDGE * at - z.T @ (weight * lost)
        step = np.linalg.solve((z * (weight * lost * (1 - lost))[:, None]).T @ z + RIDGE * np.eye(len(at)), slope)
        at = at - step
        if np.abs(step).max() < 1e-9:
            break
    weights: FloatArray = at * scale
    return weights
