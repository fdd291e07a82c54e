"""Within a question: does the probe rank its right answers above its wrong ones?

W is the share of (right, wrong) pairs of one question that are ranked right, ties one half, and its mean over questions
that have both. What is the same for all answers to a question, its difficulty above all, cannot help: it ties. Under
every condition; beside it what the answer's log-probability and its frequency among the samples give, and by how much
the read-outs of a right and a wrong answer differ where their log-probabilities are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchorscope.evidence.claim import HALF, Claim, ClaimMeasure, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.lines import (
    LEGEND,
    BoolArray,
    IntArray,
    LineName,
    Lines,
    chart_curve,
    line,
    weighted_mean,
)
from anchorscope.evidence.record import EvidenceLine
from anchorscope.pathways.chart import Chart, Row
from anchorscope.pathways.intervals import FloatArray, Resamples, average
from anchorscope.probes.record import WITHIN
from anchorscope.store.table import as_arrays


@dataclass(frozen=True)
class SampledReadouts:
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


def within_lines(answered: SampledReadouts, drawn: Resamples) -> Iterator[EvidenceLine]:
    """W by condition, what each loses, and the baselines."""
    pairs = Pairs(answered.question, answered.correct)
    n, weights = len(pairs.questions), drawn.samples[:, pairs.questions]

    def mean(scores: FloatArray) -> FloatArray:
        """(1 + resample, layer), from (repeat, answer, layer)."""
        by_repeat = np.stack([weighted_mean(pairs.won(repeat), weights) for repeat in scores])
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
        ahead, other = ((values[self.right] - values[self.wrong]).astype(np.float64) for values in (scores, held))
        moments = np.stack([ahead, other, ahead * other, other * other, ahead * ahead], axis=1)
        y, x, xy, xx, yy = weighted_mean(self._share @ moments, weights).T
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(xx - x * x > 1e-12, (xy - x * y) / (xx - x * x), 0)
            intercept: FloatArray = (y - slope * x) / np.sqrt(yy[:1] - y[:1] ** 2)
        return intercept


def _lines(cell: CellData) -> Iterator[EvidenceLine]:
    """From the `within` table; nothing where no question has both right and wrong answers."""
    kind = WITHIN.at(cell.point)
    entry = cell.cell.entry(kind)
    if entry is None:
        return iter(())
    columns: dict[str, list[Any]] = {}
    logits: list[FloatArray] = []
    for batch in cell.cell.table(kind).batches():
        for name in ("id", "correct", "logprob", "tokens", "times"):
            columns.setdefault(name, []).extend(batch.column(name).to_pylist())
        logits += as_arrays(batch.column("logits"))
    if not logits:
        return iter(())
    answers = SampledReadouts(
        np.array([cell.place[name] for name in columns["id"]], dtype=np.int64),
        np.array(columns["correct"], dtype=bool),
        np.array(columns["logprob"]),
        np.array(columns["tokens"], dtype=float),
        np.array(columns["times"], dtype=float),
        entry["inputs"]["within"]["conditions"],
        np.stack(logits).transpose(1, 2, 0, 3),
    )
    return within_lines(answers, cell.drawn)


MATCHED = "matched_question-control_question"


def _within(name: str, condition: str, less: float = 0.0) -> Callable[[Lines], ClaimMeasure | None]:
    def measure(lines: Lines) -> ClaimMeasure | None:
        curve = lines.get(LineName("within", name, condition))
        return None if curve is None else ClaimMeasure([curve.at(HALF) - less], curve.n)

    return measure


CLAIMS = (
    Claim(
        "within_signal", "Among answers to one question, the probe ranks right above wrong",
        "W − 0.5 on the clean pass, at the layer half-way up", "0.5: a question-only probe", 0.05, "above",
        _within("w", "clean", 0.5),
    ),
    Claim(
        "within_question", "Within a question, a part of the signal comes from the question's words",
        "W lost by the knockout, and by matched minus control, at the layer half-way up", "control_question",
        0.05, "above",
        at_depth(HALF, LineName("within", "w_lost", "knockout"), LineName("within", "w_lost", MATCHED)),
    ),
    Claim(
        "within_answer", "Within a question, a part of the signal is the answer's own",
        "W − 0.5 with the question taken out, at the layer half-way up", "0.5", 0.05, "above",
        _within("w", "answer_only", 0.5),
    ),
    Claim(
        "within_beyond_logprob", "Within a question, the probe knows more than the answer's log-probability",
        "read-out of right minus wrong at equal log-probability, in standard deviations of pairs", "log-probability",
        0.1, "above", _within("at_equal_logprob", "clean"),
    ),
)  # fmt: skip

CHART = Chart(
    "within_question",
    (
        Row(
            (chart_curve("within", "w", "clean"), chart_curve("within", "w", "answer_only", dotted=True)),
            "Pairs of one question ranked right (dotted: the question taken out)", "W", 0.1, 0.5,
            caption=(
                "On the clean pass (solid), and with the question taken out (dotted): the answer's own part."
            ),
        ),
        Row(
            (chart_curve("within", "w_lost", "knockout"), chart_curve("within", "w_lost", MATCHED, dotted=True)),
            "The question's part: lost by the knockout (solid); by exact tokens beyond as many others (dotted)",
            "W lost", 0.1,
            caption=(
                "The question's part: what the knockout takes (solid), and what cutting exact tokens takes beyond "
                "cutting as many other tokens of the question (dotted)."
            ),
        ),
    ),
    LEGEND,
    "Within a question: the share W of (right, wrong) pairs of answers to one and the same question that the probe "
    "ranks right, by probes fitted on other questions' greedy answers. What is the same for all answers to a "
    "question, such as its difficulty, gives 0.5.",
    title="Among several answers to one question",
    tab="within",
)  # fmt: skip

EXPERIMENT = Experiment("within", _lines, CLAIMS, charts=(CHART,))
