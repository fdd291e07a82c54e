"""Within a question: does the probe rank the question's right answers above its wrong ones?

W is the share of (right, wrong) pairs of answers to one question that are ranked correctly, where a tie counts one
half. It is averaged over the questions that have both kinds of answer. Whatever is the same for all answers to a
question, above all the question's difficulty, produces ties and cannot help. What differs between answers and is not
truth can help: how common an answer is, its type, its form. So none of these claims tells truth from the answer's
prior (evidence/crossed.py does).

W is measured under every condition. The same measure is taken of simple scores: log-probabilities of the answer and of
its exact tokens, their pointwise mutual information with the question, length, and how often the answer was sampled.
What the probe adds to all of these together is kept; their weights are fitted on other questions. Where strings recur,
W is also taken with pairs weighted such that every string counts as often right as wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchorscope.evidence.claim import HALF, Claim, above_chance, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.means import BoolArray, IntArray
from anchorscope.evidence.pairs import Pairs
from anchorscope.pathways.chart import LEGEND, Chart, Curve, Row, dotted, solid
from anchorscope.pathways.intervals import FloatArray, Resamples
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series
from anchorscope.pathways.shifts import make_donors
from anchorscope.probes.record import WITHIN
from anchorscope.questions.row import group_key
from anchorscope.store.table import as_arrays


@dataclass(frozen=True)
class SampledReadouts:
    """Several answers to each of some questions. Answers to one question stand side by side."""

    question: IntArray
    """(answer): which of the traced samples asks the question"""
    clusters: IntArray
    """(answer): the cluster of its question"""
    correct: BoolArray
    """(answer)"""
    logprob: FloatArray
    """(answer): log-probability of the whole answer"""
    min_logprob: FloatArray
    """(answer): that of its least likely token"""
    exact_logprob: FloatArray
    """(answer): that of its exact tokens"""
    pmi: FloatArray
    """(answer): log-probability minus that without the question; nan where it was not measured"""
    tokens: FloatArray
    """(answer): how many it has"""
    times: FloatArray
    """(answer): how many of the sampled answers say it"""
    strings: IntArray
    """(answer): the number of its text, the same for all answers with that text"""
    conditions: Sequence[str]
    """What was read."""
    logits: FloatArray
    """(condition, repeat, answer, layer)"""


W, LOST, ADDED, BALANCED = "within_w", "within_w_lost", "within_added_to_confidence", "within_w_balanced"
MATCHED, BEYOND = "matched_question-control_question", "knockout-permuted"


def within_series(answered: SampledReadouts, drawn: Resamples, seed: int = 0) -> Iterator[Series]:
    """W by condition, what the knockout loses, W of simple scores, and what the probe adds to them."""
    pairs = Pairs(answered.question, answered.correct)
    n = len(pairs.questions)
    # 1. under each condition, and with the shift of an answer to another question
    logits = dict(zip(answered.conditions, answered.logits, strict=True))
    ranked = {name: pairs.share(readouts, drawn) for name, readouts in logits.items()}
    if "knockout" in ranked and 2 * np.unique(answered.clusters, return_counts=True)[1].max() <= len(answered.clusters):
        clean, knockout = logits["clean"], logits["knockout"]
        donors = make_donors(answered.clusters, seed)
        moved = [pairs.share(clean + (knockout - clean)[:, donor], drawn) for donor in donors]
        ranked["permuted"] = np.mean(moved, axis=0)
    for name in READ:
        if name in ranked:
            yield Series.of(Key(W, name), ranked[name], n)
    if "knockout" in ranked:
        yield Series.of(Key(LOST, "knockout"), ranked["clean"] - ranked["knockout"], n)
    for name, other in (("knockout", "permuted"), ("matched_question", "control_question")):
        if name in ranked and other in ranked:
            yield Series.of(Key(LOST, f"{name}-{other}"), ranked[other] - ranked[name], n)
    # 2. what needs no probe
    length = np.maximum(answered.tokens, 1)
    forms = {
        "mean_logprob": answered.logprob / length,
        "min_logprob": answered.min_logprob,
        "logprob": answered.logprob,
        "exact_logprob": answered.exact_logprob,
        "pmi": answered.pmi,
        "short": -np.log(length),
        "times": np.log(np.maximum(answered.times, 1)),
    }
    for name, values in forms.items():
        if name in SHOWN and np.isfinite(values).all():
            yield Series.of(Key(f"{W}_{name}"), pairs.share(values[None, :, None], drawn)[:, 0], n)
    # 3. with every string as often right as wrong
    balanced = pairs.balanced(answered.strings)
    if len(balanced.questions):
        yield Series.of(Key(BALANCED), balanced.share(logits["clean"], drawn), len(balanced.questions))
    # 4. what the probe adds to what needs none; not told where one of these was not measured
    if not np.isfinite(answered.pmi).all():
        return
    known = np.stack(list(forms.values()), axis=1)
    confident = pairs.share(pairs.weighed(known, answered.clusters, seed)[None, :, None], drawn)[:, 0]
    yield Series.of(Key(f"{W}_confidence"), confident, n)
    middle = round((answered.logits.shape[-1] - 1) / 2)
    read = np.column_stack([known, logits["clean"][:, :, middle].mean(axis=0)])
    both = pairs.share(pairs.weighed(read, answered.clusters, seed)[None, :, None], drawn)[:, 0]
    yield Series.of(Key(ADDED), both - confident, n)


READ = ("clean", "knockout", "permuted", "answer_only")
"""Passes of which W is kept; of the others, what it is compared with."""
SHOWN = ("mean_logprob", "exact_logprob", "pmi", "short", "times")
"""Scores without a probe that tables show one by one."""
TABLES = {
    "main": {
        "probe": Key(W),
        "mean log-probability": Key(f"{W}_mean_logprob"),
        "exact tokens' log-probability": Key(f"{W}_exact_logprob"),
        "mutual information": Key(f"{W}_pmi"),
        "scores without a probe, together": Key(f"{W}_confidence"),
        "the probe adds": Key(ADDED),
    },
    "nulls": {
        "knockout": Key(W, "knockout"),
        "permutation null": Key(W, "permuted"),
        "question removed": Key(W, "answer_only"),
        "shortest first": Key(f"{W}_short"),
        "most frequent first": Key(f"{W}_times"),
        "strings as often right as wrong": Key(BALANCED),
    },
}
"""Tables of results: for each its columns."""


def _series(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    """From the `within` table; nothing where no question has both right and wrong answers."""
    kind = WITHIN.at(cell.point)
    entry = cell.cell.entry(kind)
    if entry is None:
        return iter(())
    columns: dict[str, list[Any]] = {}
    logits: list[FloatArray] = []
    for batch in cell.cell.table(kind).batches():
        for name in ("id", "answer", "correct", "logprob", "min_logprob", "exact_logprob", "pmi", "tokens", "times"):
            columns.setdefault(name, []).extend(batch.column(name).to_pylist())
        logits += as_arrays(batch.column("logits"))
    if not logits:
        return iter(())
    question = np.array([cell.place[name] for name in columns["id"]], dtype=np.int64)
    answers = SampledReadouts(
        question,
        cell.readouts.clusters[question],
        np.array(columns["correct"], dtype=bool),
        np.array(columns["logprob"]),
        np.array(columns["min_logprob"]),
        np.array(columns["exact_logprob"]),
        np.array(columns["pmi"], dtype=float),
        np.array(columns["tokens"], dtype=float),
        np.array(columns["times"], dtype=float),
        np.unique([group_key(text) for text in columns["answer"]], return_inverse=True)[1],
        entry["inputs"]["within"]["conditions"],
        np.stack(logits).transpose(1, 2, 0, 3),
    )
    return within_series(answers, cell.drawn, cell.study.seed)


CLAIMS = (
    Claim(
        "within_signal", "Among answers to one question, the probe ranks right above wrong",
        "W − 0.5 on the clean pass, at the middle layer", "0.5, the W of a question-only probe", 0.05, "above",
        above_chance(Key(W, "clean")), tells_truth_from_difficulty=True, in_place_of="crossed_fits",
    ),
    Claim(
        "within_question", "Within a question, part of the signal comes from the question's words",
        "W lost by the knockout beyond permuted, and by matched beyond control, at the middle layer",
        "permuted, control_question", 0.05, "above",
        at_depth(HALF, *(Key(LOST, name) for name in (BEYOND, MATCHED))),
        tells_truth_from_difficulty=True, in_place_of="crossed_route",
    ),
    Claim(
        "within_strings", "Right answers to a question look different as strings",
        "W − 0.5 with the question removed, at the middle layer", "0.5", 0.05, "above",
        above_chance(Key(W, "answer_only")), tells_truth_from_difficulty=True,
    ),
    Claim(
        "within_adds", "Within a question, the probe adds to log-probabilities, length and frequency",
        "W of the probe at the middle layer with scores that need no probe, minus W of these scores alone",
        "mean, minimum and sum of log-probabilities, that of the exact tokens, pointwise mutual information with the "
        "question, length, and how often the answer was sampled, weighted together", 0.02, "above",
        at_depth(HALF, Key(ADDED)), tells_truth_from_difficulty=True, in_place_of="crossed_adds",
    ),
)  # fmt: skip

CHART = Chart(
    "within_question",
    (
        Row(
            (solid(Key(W), "probe"), dotted(Key(W, "answer_only"), "probe, with the question removed")),
            "Pairs of a right and a wrong answer to one question (dotted: question removed)",
            "share of pairs", 0.1, 0.5,
            caption=(
                "W on the clean pass (solid), and with the question removed (dotted), where only the answer can help. "
                "The answer's mean log-probability, which needs no probe, is given beside them."
            ),
            dotted="question removed",
            result="The probe ranks {0} of the pairs correctly, log-probability {2}. (0.5 is chance.)",
            beside=Key(f"{W}_mean_logprob"),
            beside_name="mean log-probability, without a probe",
        ),
        Row(
            (
                solid(Key(LOST, "knockout"), "drop when key words are cut"),
                Curve(Key(LOST, MATCHED), "set", "-.", 1.2, name="its part beyond cutting as many other words"),
            ),
            "Drop when key words are cut (solid); its part beyond cutting as many other words (dash-dotted)",
            "drop in share of pairs", 0.1,
            caption=(
                "The question's part: the W lost under the knockout (solid), and the W lost by cutting exact tokens "
                "beyond what is lost by cutting as many other tokens of the question (dash-dotted)."
            ),
            result="Cutting key words lowers this share by {0}, and by {1} beyond cutting as many other words.",
        ),
    ),
    LEGEND,
    "W is the share of (right, wrong) pairs of answers to the same question that the probe ranks correctly. The probes "
    "were fitted on greedy answers to other questions. Anything that is the same for all answers to a question, such "
    "as its difficulty, gives 0.5.",
    title="Among several answers to one question",
    tab="within",
    apart=True,
)  # fmt: skip

EXPERIMENT = Experiment(
    "within",
    _series,
    (W, LOST, ADDED, BALANCED, f"{W}_confidence", *(f"{W}_{name}" for name in SHOWN)),
    CLAIMS,
    (CHART,),
    tuple(key for columns in TABLES.values() for key in columns.values()),
)
