"""Worlds in which states know something about an answer that is not whether it is right here.

    difficulty   states know how hard the question is, and nothing of the answer
    popularity   and how common the answer's string is, whatever the question; right answers are more common
    type prior   and how common the answer is among answers to such questions; right answers are more common
    entity       and the log-probability of the answer's exact tokens; the whole answer has other words around them
    fluency      and whether the answer is garbage, as 40 % of the wrong and 5 % of the right sampled answers are
    one token    and whether the answer is one token, as 65 % of the right and 45 % of the wrong answers are
    form         and whether the answer has an unusual form, in which the grader misses right answers (20 % of them)
    grader       states know difficulty; the grader errs by class, as on answers that were read (15 and 2 %)
    cue          whether the answer is right, which comes by the cue; any cut for the answer's tokens shrinks states
    product      whether the answer is right, in the product of two directions only, which no linear probe can read
    kinds        whether question and answer are of one kind, where in 20 % of crossed pairs the kinds differ
    joint        how hard the question and how common the answer is, and the product of both; easy questions have common
                 answers (correlation 0.3)
    truth        whether the answer is right, in one direction

Log-probability knows the truth by 0.8 standard deviations in all of them. Each world has greedy answers, to which
probes are fitted, three right and three wrong sampled answers to each of some questions, and crossed answers: pairs of
questions with both of their answers, where each string is right once and wrong once. What states know of a string, of
its type or of its form is then the same where it is right and where it is wrong. In `kinds` and `joint` it is not. No
tag promises these two, so they are told and not counted against a tag.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from anchorscope.evidence.crossed import CrossedReadouts, Quadruples, crossed_series
from anchorscope.evidence.within import SampledReadouts, within_series
from anchorscope.pathways.intervals import resample
from anchorscope.pathways.series import Series
from anchorscope.probes.fit import fit_layer
from anchorscope.probes.folds import make_folds
from anchorscope.probes.readouts import read_out_some
from helpers.widened import auroc_widening

Array = NDArray[Any]
AnswerKind = Literal[
    "difficulty",
    "popularity",
    "type prior",
    "entity",
    "fluency",
    "one token",
    "form",
    "grader",
    "cue",
    "product",
    "truth",
    "kinds",
    "joint",
]
KINDS: tuple[AnswerKind, ...] = (
    "difficulty", "popularity", "type prior", "entity", "fluency", "one token", "form", "grader", "cue", "product",
    "truth", "kinds", "joint",
)  # fmt: skip
ABOUT_DIFFICULTY: tuple[AnswerKind, ...] = ("difficulty", "grader")
"""Worlds in which a claim that tells truth from difficulty must not hold."""
ABOUT_PRIOR: tuple[AnswerKind, ...] = ("popularity", "type prior", "fluency", "one token", "form")
"""Worlds in which a claim that tells truth from the answer's prior must not hold."""
ABOUT_ROUTE: tuple[AnswerKind, ...] = ("cue",)
"""Worlds in which the claim about the direct route must not hold."""
WIDTH, STRENGTH = 16, 0.01
EASE, FIRST, SECOND, THIRD = 0, 1, 2, 3  # directions of the states
SHRUNK = 0.4  # states under any cut for the answer's tokens, where the truth comes by the cue
CUT = 0.25  # share of what comes from the question that a cut of its words leaves
PASSES = {
    "clean": 1.0, "knockout": CUT, "matched_question": CUT, "control_question": 1.0, "answer_only": 0.0,
    "knockout_answer": CUT, "matched_answer": CUT, "control_answer": 1.0,
}  # fmt: skip
"""Passes, and how much of what comes from the question they leave."""
FOR_ANSWER = ("knockout_answer", "matched_answer", "control_answer")
"""Passes that cut for the answer's tokens alone."""
MISSED, ACCEPTED = 0.02, 0.15  # of answers called wrong those that are right, and the other way round


@dataclass(frozen=True)
class Answers:
    """Some answers: whether each is right, what log-probability says, and what states know."""

    question: Array
    """(answer): its question"""
    right: Array
    """(answer): whether it is right"""
    graded: Array
    """(answer): whether it is called right"""
    logprob: Array
    """(answer): log-probability of the whole answer"""
    entity: Array
    """(answer): log-probability of its exact tokens"""
    removed: Array
    """(answer): log-probability of its exact tokens where the question is removed"""
    tokens: Array
    """(answer): number of tokens"""
    known: Array
    """(answer, 3): what states know of it"""
    of_question: bool
    """Whether states know it from the question's words."""


class AnswerWorld:
    """One draw of a world: the numbers of its sampled and of its crossed answers."""

    def __init__(self, kind: AnswerKind, seed: int, greedy: int = 300, questions: int = 120, pairs: int = 150) -> None:
        self.kind, self.seed, self.pairs = kind, seed, pairs
        self.rng = np.random.default_rng([seed, *kind.encode()])
        self.greedy, self.questions = greedy, questions

    def answers(self, right: Array, question: Array, string: Array | None = None) -> Answers:
        """Answers that are right or wrong; `string` (answer): where strings recur, what belongs to one is alike."""
        rng, n, sign = self.rng, len(right), np.where(right, 1.0, -1.0)

        def of_string(mean_right: float, mean_wrong: float) -> Array:
            """(answer): a number that right and wrong answers have more or less of; where strings recur, alike."""
            if string is not None:
                return rng.normal(size=string.max() + 1)[string]
            return np.where(right, mean_right, mean_wrong) + rng.normal(size=n)

        def whether(share_right: float, share_wrong: float) -> Array:
            if string is not None:
                return (rng.random(string.max() + 1) < (share_right + share_wrong) / 2)[string]
            return rng.random(n) < np.where(right, share_right, share_wrong)

        known, tokens, graded = np.zeros((n, 3)), np.full(n, 3.0), right.copy()
        removed, entity = rng.normal(size=n), 0.8 * sign + rng.normal(size=n)
        around = np.zeros(n) if string is not None else rng.normal(size=n)  # other words; given answers have none
        if self.kind in ("popularity", "type prior"):
            prior = of_string(0.8, -0.8)
            known[:, 0], entity = prior, entity + 0.5 * prior
            removed = removed + (1.0 if self.kind == "popularity" else 0.5) * prior
        elif self.kind == "entity":
            known[:, 0] = entity
        elif self.kind == "fluency":
            fluent = np.where(whether(0.05, 0.4), -2.0, 0.0) + (0 if string is not None else 0.3 * rng.normal(size=n))
            known[:, 0], entity, removed = fluent, entity + fluent, removed + fluent
        elif self.kind == "one token":
            one = whether(0.65, 0.45)
            known[:, 0], tokens = 2.0 * one, np.where(one, 1.0, 3.0)
        elif self.kind == "form":
            unusual = whether(0.2, 0.2)
            known[:, 0] = 2.0 * unusual
            if string is None:  # crossed answers need no grader
                graded = right & ~unusual
        elif self.kind == "grader" and string is None:
            odds = rng.random(n)
            graded = np.where(right, odds >= MISSED, odds < ACCEPTED)
        elif self.kind == "product":
            one = rng.choice([-2.0, 2.0], size=n)
            known[:, :2] = np.stack([one, one * sign], axis=1)
        elif self.kind in ("truth", "cue"):
            known[:, 0] = sign
        elif self.kind == "kinds" and string is not None:
            alike = np.where(right | np.repeat(rng.random(n // 4) >= 0.2, 4), 1.0, -1.0)
            known[:, 0], entity = alike, entity + alike
        elif self.kind == "joint" and string is not None:
            common = (0.3 * self.ease + np.sqrt(1 - 0.3**2) * rng.normal(size=len(self.ease)))[string]
            known[:, 0], known[:, 1], entity = common, self.ease[question] * common, entity + common
        from_question = self.kind in ("type prior", "entity", "product", "truth", "cue", "kinds", "joint")
        return Answers(question, right, graded, entity + around, entity, removed, tokens, known, from_question)

    def states(self, answers: Answers, noise: Array, name: str) -> Array:
        """(answer, width): states in a pass; in all but the clean one they also move a little at random."""
        by_cue = self.kind == "cue" and name in FOR_ANSWER
        left, x = 1.0 if by_cue else PASSES[name], noise.copy()
        x[:, EASE] += left * 1.5 * self.ease[answers.question]
        x[:, FIRST : THIRD + 1] += (left if answers.of_question else 1.0) * 1.5 * answers.known
        moved = 0.0 if name == "clean" else 0.5
        return (SHRUNK if by_cue else 1.0) * x + moved * self.rng.normal(size=x.shape)

    def passes(self, answers: Answers) -> Array:
        """(answer, pass, width)"""
        noise = self.rng.normal(size=(len(answers.right), WIDTH))
        return np.stack([self.states(answers, noise, name) for name in PASSES], axis=1).astype(np.float32)

    def sampled(self) -> Iterator[Series]:
        """The numbers within a question: probes of greedy answers, read on sampled ones."""
        rng = self.rng
        self.ease, every = rng.normal(size=self.greedy), np.arange(self.greedy)
        greedy = self.answers(rng.random(self.greedy) < expit(2 * self.ease), every)
        folds = make_folds(greedy.graded, every, 1, 4, self.seed)
        clean = self.passes(greedy)[:, 0]
        probes = fit_layer(clean, greedy.graded, every, folds, STRENGTH, seed=self.seed, parts=1)
        rows = np.repeat(np.arange(self.questions), 6)
        several = self.answers(np.tile([True, True, True, False, False, False], self.questions), rows)
        logits = read_out_some(probes, self.passes(several), folds, rows)[:, 0]  # (repeat, answer, pass)
        answered = SampledReadouts(
            rows, rows, several.graded, several.logprob, several.logprob / several.tokens, several.entity,
            several.entity - several.removed, several.tokens, np.ones(len(rows)), np.arange(len(rows)), list(PASSES),
            logits.transpose(2, 0, 1)[..., None],
        )  # fmt: skip
        yield from within_series(answered, resample(every, 1, 200, self.seed), self.seed)

    def crossed(self) -> Iterator[Series]:
        """The numbers of crossed answers: probes of the crossed answers themselves, out of fold."""
        self.ease = self.rng.normal(size=2 * self.pairs)
        first = 2 * np.arange(self.pairs)
        # q1 with a1, q2 with a2, q1 with a2, q2 with a1
        question = np.stack([first, first + 1, first, first + 1], axis=1).ravel()
        string = np.stack([first, first + 1, first + 1, first], axis=1).ravel()
        right, clusters = np.tile([True, True, False, False], self.pairs), np.repeat(np.arange(self.pairs), 4)
        answers = self.answers(right, question, string)
        x = self.passes(answers)
        folds = make_folds(right, clusters, 1, 4, self.seed)
        probes = fit_layer(x[:, 0], right, clusters, folds, STRENGTH, seed=self.seed)
        both = (x[:, 0], x[:, [*PASSES].index("knockout")])
        widened = auroc_widening(both, right, clusters, folds, probes, STRENGTH, self.seed)
        logits = read_out_some(probes, x, folds, np.arange(len(right)))[:, 0]
        logprob = answers.logprob + self.rng.normal(size=2 * self.pairs)[string]
        read = CrossedReadouts(
            Quadruples(np.arange(4 * self.pairs).reshape(-1, 4)), clusters, right,
            np.stack([logprob, logprob / answers.tokens], axis=1),
            {name: logits[:, :, place, None] for place, name in enumerate(PASSES)},
        )  # fmt: skip
        yield from crossed_series(read, resample(clusters, 1, 200, self.seed), self.seed, widened)
