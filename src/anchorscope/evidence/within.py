"""Within a question: does the probe rank its right answers above its wrong ones?

W is the share of (right, wrong) pairs of one question that are ranked right, ties one half, and its mean over questions
that have both. What is the same for all answers to a question, its difficulty above all, cannot help: it ties. Under
every condition; beside it what the answer's log-probability and its frequency among the samples give, and by how much
the read-outs of a right and a wrong answer differ where their log-probabilities are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anchorscope.evidence.lines import BoolArray, IntArray, line, weighted_mean
from anchorscope.evidence.record import Line
from anchorscope.pathways.intervals import FloatArray, Resamples, average


@dataclass(frozen=True)
class Answered:
    """Several answers to each of some questions. Answers to one question stand side by side."""

    question: IntArray
    """(answer): which of the traced samples asks the question"""
    correct: BoolArray
    """(answer)"""
    logprob: FloatArray
    """(answer): log-probability of the whole answer"""
    tokens: FloatArray
    """(answer): how many it has"""
    times: FloatArray
    """(answer): how many of the sampled answers say it"""
    conditions: Sequence[str]
    """What was read."""
    logits: FloatArray
    """(condition, repeat, answer, layer)"""


def within_lines(answered: Answered, drawn: Resamples) -> Iterator[Line]:
    """W by condition, what each loses, and the baselines."""
    pairs = Pairs(answered.question, answered.correct)
    n, weights = len(pairs.questions), drawn.samples[:, pairs.questions]

    def mean(scores: FloatArray) -> FloatArray:
        """(1 + resample, layer), from (repeat, answer, layer)."""
        by_repeat = np.stack([weighted_mean(pairs.won(each), weights) for each in scores])
        return average(by_repeat, drawn.repeats.T[:, :, None]) if len(scores) > 1 else by_repeat[0]

    ranked = {name: mean(logits) for name, logits in zip(answered.conditions, answered.logits, strict=True)}
    for name, share in ranked.items():
        yield line("within", "w", share, n, name)
        if name != "clean":
            yield line("within", "w_lost", ranked["clean"] - share, n, name)
    if "matched_question" in ranked and "control_question" in ranked:
        beyond = ranked["control_question"] - ranked["matched_question"]
        yield line("within", "w_lost", beyond, n, "matched_question-control_question")
    scores = {
        "logprob": answered.logprob,
        "mean_logprob": answered.logprob / np.maximum(answered.tokens, 1),
        "times": answered.times,
        "short": -answered.tokens,
    }
    for name, values in scores.items():
        yield line("within", f"w_{name}", mean(values[None, :, None])[:, 0], n)
    at = round((answered.logits.shape[-1] - 1) / 2)
    for place, name in enumerate(answered.conditions):
        logits = answered.logits[place, :, :, at].mean(axis=0)
        yield line("within", "at_equal_logprob", pairs.held_fixed(logits, answered.logprob, weights), n, name)


class Pairs:
    """The (right, wrong) pairs of answers to one and the same question."""

    def __init__(self, question: IntArray, correct: BoolArray) -> None:
        right, wrong, of = [], [], []
        for each in np.unique(question):
            mine = np.flatnonzero(question == each)
            good, bad = mine[correct[mine]], mine[~correct[mine]]
            if len(good) and len(bad):
                right.append(np.repeat(good, len(bad)))
                wrong.append(np.tile(bad, len(good)))
                of.append(each)
        self.questions: IntArray = np.array(of, dtype=np.int64)
        """(question): those that have both kinds"""
        self.right: IntArray = np.concatenate(right) if right else np.empty(0, np.int64)
        self.wrong: IntArray = np.concatenate(wrong) if wrong else np.empty(0, np.int64)
        sizes = np.array([len(each) for each in right], dtype=np.int64)
        self._share = np.zeros((len(of), len(self.right)), np.float32)  # a question's pairs weigh one together
        for i, (first, size) in enumerate(zip(np.cumsum(sizes) - sizes, sizes, strict=True)):
            self._share[i, first : first + size] = 1 / size

    def won(self, scores: FloatArray) -> FloatArray:
        """(question, layer): the share of its pairs that scores (answer, layer) rank right; ties one half."""
        ahead = scores[self.right] - scores[self.wrong]
        won: FloatArray = self._share @ ((ahead > 0) + 0.5 * (ahead == 0)).astype(np.float32)
        return won

    def held_fixed(self, scores: FloatArray, held: FloatArray, weights: FloatArray) -> FloatArray:
        """(1 + resample): how far right lies above wrong where `held` is equal, in standard deviations of pairs.

        The intercept of a line through (difference in `held`, difference in scores), every question weighing one.
        """
        ahead, other = ((each[self.right] - each[self.wrong]).astype(np.float64) for each in (scores, held))
        moments = np.stack([ahead, other, ahead * other, other * other, ahead * ahead], axis=1)
        y, x, xy, xx, yy = weighted_mean(self._share @ moments, weights).T
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(xx - x * x > 1e-12, (xy - x * y) / (xx - x * x), 0)
            found: FloatArray = (y - slope * x) / np.sqrt(yy[:1] - y[:1] ** 2)
        return found
