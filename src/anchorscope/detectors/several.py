"""Detectors within a question: how often they rank its right answers above its wrong ones.

Detectors are fitted on greedy answers to other questions and score several answers to this one. W is the share of
(right, wrong) pairs that they rank right (evidence/pairs.py). How hard the question is cannot help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.catalogue import CONFIDENCE, LOGPROBS
from anchorscope.detectors.inputs import Floats, confidence
from anchorscope.evidence.pairs import Pairs
from anchorscope.pathways.intervals import Resamples
from anchorscope.probes.folds import IntArray
from anchorscope.probes.logistic import BoolArray

FEWEST = 20  # questions with right and wrong answers
SIGNS = tuple(-1 if name == "log_tokens" else 1 for name in CONFIDENCE)  # a shorter answer is likelier right


@dataclass(frozen=True)
class SeveralScores:
    """What detectors say of several answers to some of the questions of a cell."""

    question: IntArray
    """(answer): the sample that asks its question"""
    clusters: IntArray
    """(answer): the cluster of its question"""
    right: BoolArray
    """(answer)"""
    known: Floats
    """(answer, number): log-probabilities in several forms, and length"""
    scores: Mapping[str, Floats]
    """By detector, (repeat, answer)."""


def within_measures(
    several: SeveralScores, drawn: Resamples, seed: int = 0
) -> tuple[dict[str, Floats], dict[str, Floats], dict[str, Floats]]:
    """By detector, (1 + resample): W; W minus that of the best form of log-probabilities; and what it adds to them.

    The best form is the one with the largest W here: the mean, minimum or sum of log-probabilities, a small length, a
    detector of these, or all of them weighed together on the pairs of other questions. That choice favours
    log-probabilities. Where none of them ranks better than chance it is 0.5. What a detector adds is W of its score
    weighed together with log-probabilities and length, minus W without it. Nothing where fewer than 20 questions have
    both kinds.
    """
    pairs = Pairs(several.question, several.right)
    if len(pairs.questions) < FEWEST:
        return {}, {}, {}

    def share(scores: Floats) -> Floats:
        """(1 + resample), from (repeat, answer)."""
        ranked: Floats = pairs.share(scores[:, :, None], drawn)[:, 0]
        return ranked

    def weighed(*features: Floats) -> Floats:
        """(1 + resample): several features (answer) in one score."""
        return share(pairs.weighed(np.column_stack(features), several.clusters, seed)[None])

    known = list(several.known.T)
    ranked = {name: share(scores) for name, scores in several.scores.items()}
    together = weighed(*known)
    alone = [share(sign * number[None]) for sign, number in zip(SIGNS, known, strict=True)]
    forms = [together, *alone, *(ranked[name] for name in LOGPROBS if name in ranked), np.full_like(together, 0.5)]
    best = max(forms, key=lambda form: float(form[0]))
    ahead: dict[str, Floats] = {name: values - best for name, values in ranked.items() if name not in LOGPROBS}
    added: dict[str, Floats] = {
        name: weighed(*known, scores.mean(axis=0)) - together
        for name, scores in several.scores.items()
        if name not in LOGPROBS
    }
    return ranked, ahead, added


def known_numbers(logprobs: list[list[float]]) -> NDArray[np.float64]:
    """(answer, number): what log-probabilities and length tell of answers."""
    numbers = confidence(logprobs)
    return np.stack([numbers[name] for name in CONFIDENCE], axis=1)
