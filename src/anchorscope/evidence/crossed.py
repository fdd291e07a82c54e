"""Crossed answers: do states know which answer fits its question, apart from how hard the one and common the other is?

Two questions of one kind and their two answers make four samples, two of them right (questions/crossed.py). W is the
share of questions whose right answer is ranked above the wrong one. The contrast of a pair of questions is

    C = s(q1, a1) + s(q2, a2) − s(q1, a2) − s(q2, a1),

and the share of pairs with C above 0 is kept. A score of the question alone and a score of the answer alone give 0.5 in
both, exactly. Log-probabilities are contrasted in the same way, so what the probe adds to them is not the answer's
prior, which they contain. Probes are fitted on the crossed answers themselves, out of fold; where the run has the same
dataset with the model's own answers too, its probes are tried as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anchorscope.evidence.claim import HALF, Claim, ClaimMeasure, Measure, above_chance, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.means import BoolArray, IntArray, weighted_mean
from anchorscope.evidence.pairs import FOLDS, Pairs, rank_weights
from anchorscope.pathways.chart import LEGEND, Chart, Row, dotted, solid
from anchorscope.pathways.intervals import FloatArray, Resamples, average
from anchorscope.pathways.lookup import Lines
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series
from anchorscope.pathways.shifts import make_donors
from anchorscope.probes.probe import load_probes, probes_stem
from anchorscope.probes.readouts import read_out_new
from anchorscope.probes.record import READOUTS
from anchorscope.questions.crossed import crossed_rows, share_a_word
from anchorscope.questions.row import group_key
from anchorscope.store.stage import always
from anchorscope.traces.record import TRACES, Trace

W, LOST, C, C_LOST, ADDS = "crossed_w", "crossed_w_lost", "crossed_c", "crossed_c_lost", "crossed_adds"
LOGPROB_W, LOGPROB_C, LOGPROBS_C = "crossed_w_logprob", "crossed_c_logprob", "crossed_c_logprobs"
OWN_W, OWN_C, OWN_ADDS = "crossed_own_w", "crossed_own_c", "crossed_own_adds"
OWN_LOGPROBS_C = "crossed_own_c_logprobs"
WINDOWS = ("knockout", "knockout_early", "knockout_middle", "knockout_late")
"""Cuts in all layers, and in each third of them."""
NULLED = {"knockout": "permuted", "knockout_answer": "permuted_answer"}
"""Passes with a permutation null: each sample gets the shift of a sample of another cluster."""
CONTROLLED = {"matched_question": "control_question", "matched_answer": "control_answer"}
"""Passes that cut exact question tokens, and those that cut as many other words for the same queries."""
LOSSES = NULLED | CONTROLLED
"""Passes whose loss is told, and what it is told beyond."""
ROUTE = ("knockout_answer-permuted_answer", "matched_answer-control_answer")
"""The test of the route: the answer's tokens alone cannot see the exact question tokens."""
REFIT = "refit_knockout_answer"
"""States under a cut, read by probes that were fitted on such states."""


@dataclass(frozen=True)
class Quadruples:
    """Two questions with both of their answers: the rows of the four samples, for each pair of questions."""

    rows: IntArray
    """(pair, 4): q1 with a1, q2 with a2, q1 with a2, q2 with a1; the first two are right"""

    @classmethod
    def of(cls, questions: Sequence[str], answers: Sequence[str], correct: Sequence[bool]) -> Quadruples:
        """Complete ones that share no row. Texts are compared as folds compare them."""
        return cls(np.array(crossed_rows(questions, answers, correct), dtype=np.int64).reshape(-1, 4))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def members(self) -> IntArray:
        """The rows of all samples."""
        return self.rows.ravel()

    def contrast(self, scores: FloatArray) -> FloatArray:
        """(…, pair, layer) from scores (…, sample, layer)."""
        first, second, third, fourth = (scores[..., self.rows[:, place], :] for place in range(4))
        # in this order a score of the question alone, or of the answer alone, gives 0 without rounding
        return (first - fourth) + (second - third)

    def share(self, contrasts: FloatArray, drawn: Resamples) -> FloatArray:
        """(1 + resample, layer): how often contrasts (repeat, pair, layer) are above 0; a tie counts one half."""
        weights = drawn.samples[:, self.rows[:, 0]]
        by_repeat = np.stack([weighted_mean((one > 0) + 0.5 * (one == 0), weights) for one in contrasts])
        return average(by_repeat, drawn.repeats.T[:, :, None]) if len(contrasts) > 1 else by_repeat[0]

    def above(self, scores: FloatArray, drawn: Resamples) -> FloatArray:
        """(1 + resample, layer): how often contrasts of scores (repeat, sample, layer) are above 0."""
        return self.share(self.contrast(scores), drawn)

    def question(self, samples: int) -> IntArray:
        """(sample): a row that stands for its question, the same for both of its answers."""
        question = np.arange(samples)
        question[self.rows[:, 2]] = self.rows[:, 0]
        question[self.rows[:, 3]] = self.rows[:, 1]
        return question


@dataclass(frozen=True)
class CrossedReadouts:
    """Read-outs of samples among which there are quadruples."""

    quadruples: Quadruples
    """The pairs of questions."""
    clusters: IntArray
    """(sample)"""
    correct: BoolArray
    """(sample)"""
    logprobs: FloatArray
    """(sample, form): log-probability of the answer, summed over its tokens first, then in other forms"""
    logits: dict[str, FloatArray]
    """(repeat, sample, layer) by condition"""

    def only(self, pairs: BoolArray) -> CrossedReadouts:
        """Some of the pairs (pair)."""
        chosen = Quadruples(self.quadruples.rows[pairs])
        return replace(self, quadruples=chosen)

    @property
    def pairs(self) -> Pairs:
        """Right and wrong answers of one question. Samples outside of quadruples take no part."""
        inside = np.zeros(len(self.correct), dtype=bool)
        inside[self.quadruples.members] = True
        question = np.where(inside, self.quadruples.question(len(inside)), np.arange(len(inside)))
        return Pairs(question, self.correct)


def crossed_series(read: CrossedReadouts, drawn: Resamples, seed: int = 0, widened: float = 1.0) -> Iterator[Series]:
    """W and the contrast by condition, what cuts lose of them, and what the probe adds to log-probability.

    Like ΔAUROC, what is lost is not widened for the variance of training: one probe reads both sides.
    """
    pairs, quadruples, n = read.pairs, read.quadruples, len(read.quadruples)
    clean, donors = read.logits["clean"], make_donors(read.clusters, seed)
    # 1. W and the share of contrasts above 0 in each pass, and with the shift of a sample of another cluster
    ways: dict[str, Callable[[FloatArray, Resamples], FloatArray]] = {W: pairs.share, C: quadruples.above}
    shares = {
        (what, name): share(logits, drawn) for what, share in ways.items() for name, logits in read.logits.items()
    }
    for name, null in NULLED.items():
        if name in read.logits:
            moved = [clean + (read.logits[name] - clean)[:, donor] for donor in donors]
            shares |= {
                (what, null): np.mean([share(one, drawn) for one in moved], axis=0) for what, share in ways.items()
            }
    for (what, name), values in shares.items():
        yield Series.of(Key(what, name), values, n, widened)
    # 2. what a cut loses beyond what it is compared with
    for what, lost in ((W, LOST), (C, C_LOST)):
        for name, other in LOSSES.items():
            if (what, name) in shares and (what, other) in shares:
                yield Series.of(Key(lost, f"{name}-{other}"), shares[what, other] - shares[what, name], n)
    for name in WINDOWS:
        if name in read.logits:
            yield Series.of(Key(LOST, name), shares[W, "clean"] - shares[W, name], n)
    # 3. beside log-probability
    yield Series.of(Key(LOGPROB_W), pairs.share(read.logprobs[None, :, :1], drawn)[:, 0], n)
    yield Series.of(Key(LOGPROB_C), quadruples.above(read.logprobs[None, :, :1], drawn)[:, 0], n)
    yield from _beside_logprobs(read, drawn, seed, widened, (LOGPROBS_C, ADDS))


def _beside_logprobs(
    read: CrossedReadouts, drawn: Resamples, seed: int, widened: float, names: tuple[str, str]
) -> Iterator[Series]:
    """Contrasts of all forms of log-probability together, and what the clean pass's probe adds, layer by layer."""
    quadruples, clusters = read.quadruples, read.clusters[read.quadruples.rows[:, 0]]
    forms = quadruples.contrast(read.logprobs)
    probe = quadruples.contrast(read.logits["clean"].mean(axis=0))
    alone = quadruples.share(weighed(forms, clusters, seed)[None, :, None], drawn)
    both = [weighed(np.column_stack([forms, column]), clusters, seed) for column in probe.T]
    added = quadruples.share(np.stack(both, axis=1)[None], drawn) - alone
    yield Series.of(Key(names[0]), alone[:, 0], len(quadruples))
    yield Series.of(Key(names[1]), added, len(quadruples), widened)


def weighed(contrasts: FloatArray, clusters: IntArray, seed: int) -> FloatArray:
    """(pair): several contrasts (pair, feature) in one, weighted as ranks other clusters' pairs best."""
    names, cluster = np.unique(clusters, return_inverse=True)
    fold = np.random.default_rng([seed, 0xC5]).permutation(np.arange(len(names)) % FOLDS)[cluster]
    score = np.zeros(len(contrasts))
    for number in range(FOLDS):
        mine = fold == number
        score[mine] = contrasts[mine] @ rank_weights(contrasts[~mine], np.ones(int((~mine).sum())))
    return score


def forms_of(rows: Sequence[Trace]) -> FloatArray:
    """(sample, form): the answer's log-probability as a sum, as a mean and of its least likely token."""
    return np.array([[sum(row.logprobs), np.mean(row.logprobs), min(row.logprobs)] for row in rows])


def apart(rows: Sequence[Trace], quadruples: Quadruples) -> BoolArray:
    """(pair): whether no answer shares a word with one of the two questions."""
    texts = [
        ([rows[i].question for i in members], [rows[i].answer for i in members]) for members in quadruples.rows[:, :2]
    ]
    return np.array([not share_a_word(*both) for both in texts], dtype=bool)


def together(clusters: IntArray, quadruples: Quadruples) -> BoolArray:
    """(pair): whether its four rows are in one cluster, so that no fold learns from one what another is asked."""
    of_pair = clusters[quadruples.rows]
    return (of_pair == of_pair[:, :1]).all(axis=1)


def _series(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    """From the read-outs: the numbers with these keys. Nothing where not most samples belong to pairs of questions."""
    rows, readouts = cell.recorded.rows, cell.readouts
    texts = [(group_key(row.question), group_key(row.answer), row.correct) for row in rows]
    quadruples = Quadruples.of(*zip(*texts, strict=True))
    if 2 * quadruples.rows.size < len(rows):
        return
    logits = {name: readouts.logits[place, :, 0] for place, name in enumerate(readouts.conditions)}
    if "knockout_answer" in cell.recorded.refit:
        logits[REFIT] = cell.recorded.refit["knockout_answer"]
    read = CrossedReadouts(quadruples, readouts.clusters, readouts.labels, forms_of(rows), logits)
    read = read.only(apart(rows, quadruples) & together(readouts.clusters, quadruples))
    if len(read.quadruples):
        made = crossed_series(read, cell.drawn, cell.study.seed, cell.widening(Key("auroc")))
        yield from (one for one in (*made, *_by_own_probes(cell, read)) if one.key in keys)


def _by_own_probes(cell: CellData, read: CrossedReadouts) -> Iterator[Series]:
    """The probes that were fitted on the model's own answers to the same dataset, on questions that they never saw.

    They may have seen a question's subject or an answer, which cancels; not both together.
    """
    spec = next(dataset for dataset in cell.study.datasets if dataset.name == cell.dataset)
    for other in cell.study.datasets:
        its_cell = cell.store.results(cell.model, other.name)
        same = (other.set, other.path) == (spec.set, spec.path) and other.crossed is None
        if not same or its_cell.entry(READOUTS.at(cell.point)) is None:
            continue
        seen = {group_key(row.question) for row in its_cell.table(TRACES)}
        rows = cell.recorded.rows
        new = np.array([group_key(row.question) not in seen for row in rows])
        unseen = read.only(np.array([new[rows].all() for rows in read.quadruples.rows], dtype=bool))
        if not len(unseen.quadruples):
            return
        layers = load_probes(probes_stem(its_cell, cell.point))[0]
        states = (cell.activations.layer("clean", cell.point, layer) for layer in range(len(layers)))
        logits = np.stack([read_out_new(probes, x)[:, 0] for probes, x in zip(layers, states, strict=True)], axis=-1)
        own = replace(unseen, logits={"clean": logits})
        n = len(own.quadruples)
        yield Series.of(Key(OWN_W), own.pairs.share(logits, cell.drawn), n)
        yield Series.of(Key(OWN_C), own.quadruples.above(logits, cell.drawn), n)
        yield from _beside_logprobs(own, cell.drawn, cell.study.seed, 1.0, (OWN_LOGPROBS_C, OWN_ADDS))
        return


def _share_lost(lines: Lines) -> FloatArray | None:
    """(1 + resample): of what the contrast shows beyond chance, the share that is lost by the cut for the answer.

    None where it is not shown to be beyond chance, of which no share can be taken.
    """
    left, there = (lines[Key(C, name)].at(HALF) - 0.5 for name in ("knockout_answer", "permuted_answer"))
    return 1 - left / there if np.quantile(there, 0.025) > 0 else None


def _larger_loses_more(smaller: Mapping[str, Lines], larger: Mapping[str, Lines]) -> ClaimMeasure | None:
    """The share lost in the larger model minus that in the smaller one, mean over datasets."""
    sets = [
        name
        for name in smaller
        if Key(C, "knockout_answer") in smaller[name] and smaller[name].keys() == larger.get(name, {}).keys()
    ]
    shares = [(_share_lost(larger[name]), _share_lost(smaller[name])) for name in sets]
    more = [one - other for one, other in shares if one is not None and other is not None]
    if not more or len(more) < len(sets):
        return None
    return ClaimMeasure(
        [np.mean(more, axis=0)], min(of[name][Key(C, "knockout_answer")].n for of in (smaller, larger) for name in sets)
    )


TABLES = {
    "main": {
        "W": Key(W),
        "W, knockout": Key(W, "knockout"),
        "its null": Key(W, "permuted"),
        "answer only": Key(W, "answer_only"),
        "lost beyond the null": Key(LOST, "knockout-permuted"),
        "exact beyond other words": Key(LOST, "matched_question-control_question"),
    },
    "route": {
        "W, cut for the answer": Key(W, "knockout_answer"),
        "lost beyond the null": Key(LOST, "knockout_answer-permuted_answer"),
        "exact beyond other words": Key(LOST, "matched_answer-control_answer"),
    },
    "route_contrast": {
        "C, cut for the answer": Key(C, "knockout_answer"),
        "C, probe refitted": Key(C, REFIT),
        "C lost beyond the null": Key(C_LOST, "knockout_answer-permuted_answer"),
        "C, exact beyond other words": Key(C_LOST, "matched_answer-control_answer"),
    },
    "windows": {
        "W lost, cut in all layers": Key(LOST, "knockout"),
        "in the first third": Key(LOST, "knockout_early"),
        "in the middle third": Key(LOST, "knockout_middle"),
        "in the last third": Key(LOST, "knockout_late"),
    },
    "contrast": {
        "log-probability": Key(LOGPROB_C),
        "log-probabilities together": Key(LOGPROBS_C),
        "probe": Key(C),
        "probe, knockout": Key(C, "knockout"),
        "the probe adds": Key(ADDS),
    },
    "own": {
        "W": Key(OWN_W),
        "contrast": Key(OWN_C),
        "log-probabilities together": Key(OWN_LOGPROBS_C),
        "the probe adds": Key(OWN_ADDS),
    },
}
"""Tables of results: for each its columns."""
AT_LAST = frozenset(TABLES["windows"].values())
"""Numbers that tables of results show at the last layer, behind every window, and not at the middle one."""

CLAIMS = (
    Claim(
        "crossed_fits", "States know which answer fits its question",
        "W − 0.5 of crossed answers on the clean pass, at the middle layer",
        "0.5, the W of anything that knows the question alone or the answer alone", 0.05, "above",
        above_chance(Key(W)), tells_truth_from_difficulty=True, tells_truth_from_prior=True, primary=True,
    ),
    Claim(
        "crossed_route", "By the middle layer, part of that knowledge reaches the answer's tokens directly from the "
        "question's exact tokens",
        "W and C of crossed answers lost when the answer's tokens alone cannot see the exact question tokens, at the "
        "middle layer: beyond the permutation null, and beyond a cut of as many other words",
        "the shift of another pair, and other words of the question", 0.05, "above",
        at_depth(HALF, *(Key(lost, route) for lost in (LOST, C_LOST) for route in ROUTE)),
        tells_truth_from_difficulty=True, tells_truth_from_prior=True, primary=True,
    ),
    Claim(
        "crossed_adds", "The probe knows more about the fit than log-probability",
        "share of crossed pairs that probe and log-probabilities rank right together, minus log-probabilities alone, "
        "at the middle layer",
        "sum, mean and minimum of log-probabilities, with the answer's prior cancelled on both sides", 0.02, "above",
        at_depth(HALF, Key(ADDS)), tells_truth_from_difficulty=True, tells_truth_from_prior=True, primary=True,
    ),
    Claim(
        "crossed_larger", "The larger model of a pair loses a larger share of that knowledge",
        "share of C − 0.5 lost when the answer's tokens alone cannot see the exact question tokens, beyond the "
        "permutation null, at the middle layer: larger minus smaller model, mean over datasets",
        "the smaller model", 0.1, "above",
        Measure((Key(C, "knockout_answer"), Key(C, "permuted_answer")), _larger_loses_more),
        tells_truth_from_difficulty=True, tells_truth_from_prior=True, about="pair",
    ),
)  # fmt: skip

CHART = Chart(
    "crossed",
    (
        Row(
            (solid(Key(W), "as asked"), dotted(Key(W, "knockout_answer"), "key words cut for the answer's tokens")),
            "Two similar questions are read with both answers, as asked (solid) and with key words cut (dotted)",
            "share of questions", 0.1, 0.5,
            caption=(
                "W on the clean pass (solid), and when the answer's tokens alone cannot see the exact question tokens "
                "(dotted)."
            ),
            dotted="exact question tokens cut for the answer's tokens",
            result="The probe ranks a question's own answer first in {0} of questions, in {1} with key words cut.",
        ),
        Row(
            (solid(Key(C), "as asked"), dotted(Key(C, "knockout_answer"), "key words cut for the answer's tokens")),
            "A pair counts if its own answers score more in sum than swapped: how likely each is by itself cancels",
            "share of pairs", 0.1, 0.5,
            caption=(
                "The share of pairs whose contrast is above 0 on the clean pass (solid), and when the answer's tokens "
                "alone cannot see the exact question tokens (dotted). Log-probabilities, which need no probe, are "
                "given beside them."
            ),
            dotted="exact question tokens cut for the answer's tokens",
            result="Own answers beat swapped ones in {0} of pairs ({1} if cut, log-probabilities {2}).",
            beside=Key(LOGPROBS_C),
            beside_name="log-probabilities, without a probe",
        ),
    ),
    LEGEND,
    "Two questions of one kind are read with both of their answers, so each answer is right once and wrong once. "
    "Anything that is a property of the question alone or of the answer alone gives 0.5.",
    title="Crossed answers",
    tab="within",
    apart=True,
)  # fmt: skip

EXPERIMENT = Experiment(
    "crossed",
    _series,
    (W, LOST, C, C_LOST, ADDS, LOGPROB_W, LOGPROB_C, LOGPROBS_C, OWN_W, OWN_C, OWN_ADDS, OWN_LOGPROBS_C),
    CLAIMS,
    (CHART,),
    (*(key for columns in TABLES.values() for key in columns.values()), Key(LOGPROB_W)),
    optional=True,
    wanted=always,
)
