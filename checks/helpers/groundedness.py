"""Answers whose source is known from a counterfactual twin, and what tells their source.

The same question is asked with its original passage and with one in which the answer was replaced by another name.
An answer that is right with the original passage and follows the replacement was taken from the passage; one that stays
the same was remembered. Everything is measured on the original passage, where the answer stands in the text either way.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anchorscope.answers.record import ANSWERS
from anchorscope.detectors.grounding import GroundingRule
from anchorscope.grades.grading import grader
from anchorscope.grades.record import GRADES
from anchorscope.pathways.intervals import centred, interval, mean_auroc, resample
from anchorscope.probes.record import READOUTS
from anchorscope.probes.recorded import read_readouts
from anchorscope.questions.record import QUESTIONS
from anchorscope.spans.words import words
from anchorscope.store import Store
from anchorscope.study.terms import SUPPORTED
from anchorscope.traces.activations import Activations
from anchorscope.traces.record import MASS, TRACES
from helpers.steps import Figures

ORIGINALS, CONFLICTS, CLOSED = "originals", "conflicts", "closed"
SPLITS = 200  # random halves on which the promise is tried
AT_MOST = 0.1

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Twins:
    """Answers of one model to original passages, whose source the twin tells."""

    model: str
    asked: int
    """Questions that were asked with both passages."""
    right: int
    """Answers that were right with the original passage and could be traced."""
    followed: NDArray[np.bool_]
    """(answer): whether it came from the passage"""
    clusters: NDArray[np.int64]
    scores: dict[str, Floats]
    """By name, (answer): higher for answers from the passage"""
    questions: list[str]
    answers: list[str]
    passages: list[str]


def read_twins(run: Path, closed: Path | None = None) -> list[Twins]:
    """Those of every model of a run."""
    store = Store.open(run)
    return [_twins(store, model.name, closed) for model in store.study.models]


def _twins(store: Store, model: str, closed: Path | None) -> Twins:
    original, conflict = store.results(model, ORIGINALS), store.results(model, CONFLICTS)
    questions = {q.id: q for q in store.questions(ORIGINALS).table(QUESTIONS)}
    substituted = {row.id: row.answer for row in conflict.table(ANSWERS)}
    moved = {row.id: row.correct for row in conflict.table(GRADES)}
    rows = list(original.table(TRACES))
    # 1. whose source is known
    source: dict[int, bool] = {}
    for place, row in enumerate(rows):
        if row.correct:
            stays = grader()(substituted[row.id] or "", questions[row.id].answers, row.question).correct
            if bool(moved[row.id]) != bool(stays):
                source[place] = bool(moved[row.id])
    known = np.array(list(source), dtype=np.int64)
    # 2. what could tell it
    activations, point = Activations(original), store.study.traces.points[0]
    support = {
        name: activations.support(name).astype(np.float64)[known]
        for name in SUPPORTED
        if name in store.study.traces.conditions
    }
    lost = {name: support["clean"] - values for name, values in support.items()}
    scores: dict[str, Floats] = {
        "lost without the passage": lost["knockout_context"],
        "lost without the evidence": lost["knockout_evidence"],
        "lost beyond the control": lost["matched_evidence"] - lost["control_evidence"],
        **({"lost with the twin passage": lost["swapped_context"]} if "swapped_context" in lost else {}),
        "lost without the question": lost["knockout"],
        "log-probability, less is more": -support["clean"],
        "tokens of the answer": np.array([float(len(rows[i].logprobs)) for i in known]),
    }
    if original.entry(READOUTS.at(point)) is not None:
        scores["what the probe loses"] = _probe_loss(store, model)[known]
    if original.entry(MASS) is not None:
        cut = (row for row in original.table(MASS) if row.condition == "knockout_context")
        masses = {row.id: float(np.mean(row.mass)) for row in cut}
        scores["attention to the passage"] = np.array([masses.get(rows[i].id, np.nan) for i in known])
    if closed is not None:
        before = {row.id: bool(row.correct) for row in Store.open(closed).results(model, CLOSED).table(GRADES)}
        scores["not answered without a passage"] = np.array([float(not before[rows[i].id]) for i in known])
    texts = [questions[rows[i].id] for i in known]
    scores["words in the best sentence"] = np.array([_overlap(q.question, q.context or "") for q in texts])
    return Twins(
        model,
        len(questions),
        sum(row.correct for row in rows),
        np.array(list(source.values()), bool),
        np.array([rows[i].cluster for i in known], dtype=np.int64),
        scores,
        [q.question for q in texts],
        [rows[i].answer for i in known],
        [q.context or "" for q in texts],
    )


def _probe_loss(store: Store, model: str) -> Floats:
    """(sample): by how much the read-out falls without the passage, at the middle layer."""
    readouts = read_readouts(store, model, ORIGINALS, store.study.traces.points[0]).readouts
    at = round((readouts.layers - 1) / 2)
    clean, cut = (readouts.conditions.index(name) for name in ("clean", "knockout_context"))
    lost: Floats = (readouts.logits[clean, :, 0, :, at] - readouts.logits[cut, :, 0, :, at]).mean(axis=0)
    return lost.astype(np.float64)


def _overlap(question: str, passage: str) -> float:
    """The share of the question's words that stand in the sentence with most of them."""
    from anchorscope.spans.passages import sentences

    def bag(text: str) -> set[str]:
        return {text[start:end].casefold() for start, end in words(text)}

    asked = bag(question)
    return max((len(asked & bag(passage[a:b])) / max(1, len(asked)) for a, b in sentences(passage)), default=0.0)


def compared(twins: Twins) -> Figures:
    """How well each number tells the source: AUROC with its interval; and whether a rule's promise is kept."""
    followed = twins.followed
    counts: Figures = {
        "asked": twins.asked, "right with the original passage": twins.right,
        "from the passage": int(followed.sum()), "from memory": int((~followed).sum()),
    }  # fmt: skip
    if min(followed.sum(), (~followed).sum()) < 5:
        return {**counts, "compared": "too few of one kind"}
    drawn = resample(twins.clusters, 1, 2000, 0)
    areas: Figures = {}
    for name, values in twins.scores.items():
        if np.isfinite(values).all():
            area = mean_auroc(followed, values[None, :, None].astype(np.float32), drawn)[:, 0]
            low, high = (float(end) for end in interval(centred(area[:, None], 1.0)[:, 0]))
            areas[name] = [round(float(area[0]), 3), round(max(low, 0.0), 3), round(min(high, 1.0), 3)]
    return {**counts, "auroc": areas, "promise": _promised(twins)}


def _promised(twins: Twins) -> Figures:
    """Random halves of the questions: a rule from one, its verdicts on the other, and how many of these are wrong."""
    lost, followed = twins.scores["lost without the passage"], twins.followed
    groups = np.unique(twins.clusters)
    counts: Counter[str] = Counter()
    for draw in range(SPLITS):
        random = np.random.default_rng([draw, 0x6D])
        fitting = np.isin(twins.clusters, random.permutation(groups)[: len(groups) // 2])
        if followed[fitting].all() or not followed[fitting].any():
            continue
        rule = GroundingRule.fit(twins.model, lost[fitting], followed[fitting], twins.clusters[fitting], AT_MOST)
        new, truth = lost[~fitting], followed[~fitting]
        passage = new >= (np.inf if rule.from_passage is None else rule.from_passage)
        memory = new <= (-np.inf if rule.from_memory is None else rule.from_memory)
        passage, memory = passage & ~memory, memory & ~passage
        counts["splits"] += 1
        counts["with a threshold for the passage"] += rule.from_passage is not None
        counts["with a threshold for memory"] += rule.from_memory is not None
        counts["called from the passage"] += int(passage.sum())
        counts["of these from memory"] += int((~truth)[passage].sum())
        counts["called from memory"] += int(memory.sum())
        counts["of these from the passage"] += int(truth[memory].sum())
        counts["not called"] += int((~passage & ~memory).sum())
    return {**counts, "promised share of wrong ones, at most": AT_MOST}
