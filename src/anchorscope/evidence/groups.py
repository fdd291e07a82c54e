"""What tells Q-Anchored from A-Anchored answers: the knowledge boundary, self-awareness, saliency; and if labels last.

A sample is Q-Anchored here if the knockout flips its predicted class at the middle layer in at least half of the
draws (repeats and halves). Groups are compared within a predicted class, and pathways read within tenths of the clean
logit: what the predicted class and its confidence give away counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from anchorscope.answers.record import SAMPLED
from anchorscope.evidence.anchored import Groups, difference
from anchorscope.evidence.claim import Claim, ClaimMeasure, at_depth
from anchorscope.evidence.dip import ALTERNATIVES, dip_test, dip_within
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.lines import BoolArray, IntArray, LineName, Lines, bins_of, line
from anchorscope.evidence.record import EvidenceLine
from anchorscope.pathways.baselines import within_strata
from anchorscope.pathways.intervals import FloatArray, Resamples
from anchorscope.pathways.splits import cohens_kappa
from anchorscope.probes.fit import choose_strength, fit_layer
from anchorscope.probes.folds import Folds, folds_of
from anchorscope.probes.readouts import read_out
from anchorscope.probes.record import PROMPTS, SALIENCY
from anchorscope.store.table import as_arrays
from anchorscope.study.terms import MIN_GROUP

TENTHS, FIFTHS = 10, 5
STRENGTHS = (1e-4, 1e-3, 1e-2)


def boundary_lines(
    groups: Groups,
    labels: BoolArray,
    probability: FloatArray,
    popularity: FloatArray,
    entropy: FloatArray,
    confidence: FloatArray,
    drawn: Resamples,
) -> Iterator[EvidenceLine]:
    """Accuracy, popularity, entropy of the answers and log-probability: Q minus A within a predicted class.

    Weighted by 1 / sampling probability. What is not known of a sample is nan.
    """
    inverse = 1 / probability
    numbers = {
        "accuracy": labels.astype(np.float64),
        "log_popularity": popularity,
        "entropy": entropy,
        "mean_logprob": confidence,
    }
    for name, values in numbers.items():
        gap = difference(values, groups, inverse, drawn.samples)
        if gap is not None:
            yield line("boundary", name, gap, int(np.isfinite(values).sum()), "", "Q-A")


def awareness_lines(
    groups: Groups, states: FloatArray, clusters: IntArray, folds: Folds, drawn: Resamples, seed: int
) -> Iterator[EvidenceLine]:
    """Can a probe read the pathway from clean states (sample, width), beyond predicted class and confidence?"""
    label = groups.q
    counts = min(len(np.unique(clusters[label])), len(np.unique(clusters[~label])))
    if counts < MIN_GROUP:
        return
    one = Folds(folds.fold[:1], folds.half[:1])
    strength = choose_strength([0], lambda _: states, label, clusters, one, STRENGTHS, seed=seed)
    scores = read_out(fit_layer(states, label, clusters, one, strength, seed=seed, parts=1), states, one)[:, 0]
    strata = bins_of(groups.clean, TENTHS)
    weights, votes = drawn.samples, np.ones((len(drawn), 1), np.float32)
    # near the boundary any shift flips: closeness to it is what confidence alone gives
    own, confident = (
        within_strata(label, values[:, :, None], strata, weights, votes)[:, 0]
        for values in (scores, -np.abs(groups.clean)[None])
    )
    whole = within_strata(label, scores[:, :, None], np.zeros(len(label)), weights, votes)[:, 0]
    yield line("awareness", "auroc", whole, len(label))
    yield line("awareness", "auroc_at_equal_logit", own, len(label))
    yield line("awareness", "auroc_of_confidence", confident, len(label))
    yield line("awareness", "beyond_confidence", own - confident, len(label))


def shift_lines(groups: Groups) -> Iterator[EvidenceLine]:
    """Two groups, or a continuum, in what the knockout does to the logit? Within fifths of the clean logit."""
    yield from dip_lines("shift", groups.change, bins_of(groups.clean, FIFTHS))


def dip_lines(experiment: str, values: FloatArray, strata: IntArray | None = None) -> Iterator[EvidenceLine]:
    """The dip, how often one group has one as large, and how often two groups have one as small."""
    exact = np.asarray(values, np.float64)
    dip = dip_test(exact) if strata is None else dip_within(exact, strata)
    for name, number in (
        ("dip", dip.statistic),
        ("dip_p_unimodal", dip.p_unimodal),
        ("dip_p_two_groups", dip.p_two_groups),
    ):
        yield line(experiment, name, np.array([number]), len(values))


def saliency_lines(
    groups: Groups, members: IntArray, of: dict[str, FloatArray], drawn: Resamples
) -> Iterator[EvidenceLine]:
    """Saliency (sample) of some members: Q minus A within a predicted class, and the dip of its logarithm."""
    for name, values in of.items():
        every = np.full(len(groups.clean), np.nan)
        # none where an answer is one token: its likelihood does not depend on what that token sees
        every[members[values > 0]] = np.log(values[values > 0])
        gap = difference(every, groups, np.ones(len(every)), drawn.samples)
        if gap is not None:
            yield line("saliency", f"log_{name}", gap, int(np.isfinite(every).sum()), "", "Q-A")
        experiment = "saliency" if name == "of_logit" else "saliency_of_loss"
        known = every[members][np.isfinite(every[members])]
        if len(known) >= MIN_GROUP:
            yield from dip_lines(experiment, known)


def stability_lines(
    groups: Groups, drawn: Resamples, members: IntArray, prompts: Sequence[FloatArray]
) -> Iterator[EvidenceLine]:
    """Kappa of labels between the halves of the probes, and between the study's prompt and others.

    `prompts`: for each set of shots (clean or knockout, sample): logits at the middle layer of the members.
    """
    agreed = [cohens_kappa(first[:, None], second[:, None], drawn.samples)[:, 0] for first, second in groups.halves]
    yield line("stability", "kappa_halves", np.mean(agreed, axis=0), len(groups.q))
    own = (groups.clean > 0) != (groups.clean + groups.change > 0)
    for number, (clean, knockout) in enumerate(prompts, 1):
        known = np.isfinite(clean)
        rows = members[known]
        flipped = (clean[known] > 0) != (knockout[known] > 0)
        kappa = cohens_kappa(own[rows][:, None], flipped[:, None], drawn.samples[:, rows])[:, 0]
        yield line("stability", f"kappa_prompt_{number}", kappa, len(rows))


# --- from the tables of a run


def _groups(cell: CellData) -> Iterator[EvidenceLine]:
    """Boundary, awareness, stability of labels, and whether the shift has two groups."""
    rows, study, groups = cell.recorded.rows, cell.study, cell.groups
    unknown = float("nan")
    yield from boundary_lines(
        groups,
        cell.readouts.labels,
        cell.readouts.probability,
        np.array([np.log(row.popularity) if row.popularity else unknown for row in rows]),
        _entropy(cell),
        np.array([np.mean(row.logprobs) if row.logprobs else unknown for row in rows]),
        cell.drawn,
    )
    _, clusters, folds = folds_of(rows, study.probes, study.seed)
    states = cell.activations.layer("clean", cell.point, groups.layer)
    yield from awareness_lines(groups, states, clusters, folds, cell.drawn, study.seed)
    yield from shift_lines(groups)
    members, prompts = _prompts(cell)
    yield from stability_lines(groups, cell.drawn, members, prompts)


def _entropy(cell: CellData) -> FloatArray:
    """(sample): entropy of the distinct answers that were sampled, in nats; nan where none were."""
    values = np.full(len(cell.place), np.nan)
    if cell.cell.entry(SAMPLED) is not None:
        for row in cell.cell.table(SAMPLED):
            share = np.array(row.times) / sum(row.times)
            values[cell.place[row.id]] = -(share * np.log(share)).sum()
    return values


def _prompts(cell: CellData) -> tuple[IntArray, list[FloatArray]]:
    """Which samples were asked with other shots, and their logits: (clean or knockout, sample) each."""
    kind = PROMPTS.at(cell.point)
    if cell.cell.entry(kind) is None:
        return np.empty(0, np.int64), []
    by_prompt: dict[int, dict[int, FloatArray]] = {}
    for batch in cell.cell.table(kind).batches():
        names, numbers = batch.column("id").to_pylist(), batch.column("prompt").to_pylist()
        for name, number, logits in zip(names, numbers, as_arrays(batch.column("logits")), strict=True):
            by_prompt.setdefault(number, {})[cell.place[name]] = logits[:, :, cell.groups.layer].mean(axis=1)
    members = np.array(list(next(iter(by_prompt.values()))), dtype=np.int64) if by_prompt else np.empty(0, np.int64)
    return members, [np.stack([by_sample[i] for i in members], axis=1) for by_sample in by_prompt.values()]


def _saliency(cell: CellData) -> Iterator[EvidenceLine]:
    """Attention times gradient."""
    kind = SALIENCY.at(cell.point)
    if cell.cell.entry(kind) is None:
        return iter(())
    rows = list(cell.cell.table(kind))
    members = np.array([cell.place[row.id] for row in rows], dtype=np.int64)
    of: dict[str, FloatArray] = {
        name: np.array([sum(getattr(row, name)) for row in rows]) for name in ("of_logit", "of_loss")
    }
    return saliency_lines(cell.groups, members, of, cell.drawn)


# --- the claims


def _dips(*experiments: str) -> Callable[[Lines], ClaimMeasure | None]:
    def measure(lines: Lines) -> ClaimMeasure | None:
        names = [
            [LineName(experiment, name) for name in ("dip", "dip_p_unimodal", "dip_p_two_groups")]
            for experiment in experiments
        ]
        if any(name not in lines for of_experiment in names for name in of_experiment):
            return None
        values = [[float(lines[name].value[0]) for name in of_experiment] for of_experiment in names]
        worst = max(values, key=lambda numbers: numbers[1])
        return ClaimMeasure(
            [np.array([worst[0]])], lines[names[0][0]].n, p=(worst[1], min(numbers[2] for numbers in values))
        )

    return measure


RULED_OUT = " and ".join(f"{100 * share:.0f} % of answers {apart:.0f} SD away" for share, apart in ALTERNATIVES)
ONE_OR_TWO = f"a uniform distribution (holds); {RULED_OUT} (does not hold if the dip is too small for both)"

CLAIMS = (
    Claim(
        "two_groups", "The shifts form two groups of answers far apart, not a continuum",
        "dip of Δlogit, mean over fifths of the clean logit", ONE_OR_TWO, 0, "above", _dips("shift"),
    ),
    Claim(
        "two_groups_saliency", "Saliency forms two groups of answers far apart, not a continuum",
        "dip of log saliency", ONE_OR_TWO, 0, "above", _dips("saliency"),
    ),
    Claim(
        "boundary", "In a predicted class, Q-Anchored answers are right more often than others",
        "accuracy of Q minus A within a predicted class", "the predicted class", 0.1, "above",
        at_depth(0, LineName("boundary", "accuracy", "", "Q-A")),
    ),
    Claim(
        "readable", "Clean states show the pathway, beyond predicted class and confidence",
        "AUROC of a probe for Q at equal clean logit, minus the AUROC of confidence", "confidence", 0.05, "above",
        at_depth(0, LineName("awareness", "beyond_confidence")),
    ),
)  # fmt: skip

EXPERIMENT = Experiment("groups", _groups, CLAIMS)
SALIENCY_EXPERIMENT = Experiment("saliency", _saliency)
