"""(Right, wrong) pairs of answers to one and the same question: how often scores rank them right.

What is the same for all answers to a question, its difficulty above all, is the same on both sides of a pair. It can
neither help nor hurt.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from anchorscope.evidence.lines import BoolArray, IntArray, weighted_mean
from anchorscope.pathways.intervals import FloatArray, Resamples, average

FOLDS = 5  # of the questions: scores of several features are weighed on the other folds
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
        weights = drawn.samples[:, self.questions]
        by_repeat = np.stack([weighted_mean(self.won(repeat), weights) for repeat in scores])
        return average(by_repeat, drawn.repeats.T[:, :, None]) if len(scores) > 1 else by_repeat[0]

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
