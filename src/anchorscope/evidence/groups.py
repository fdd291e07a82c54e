"""What tells Q-Anchored from A-Anchored answers: the knowledge boundary, self-awareness, saliency; and if labels last.

A sample is Q-Anchored here if the knockout flips its predicted class at the layer half-way up in at least half of the
draws (repeats and halves). Groups are compared within a predicted class, and pathways read within tenths of the clean
logit: what the predicted class and its confidence give away counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from anchorscope.evidence.dip import dip_test, dip_within
from anchorscope.evidence.lines import BoolArray, IntArray, bins_of, line
from anchorscope.evidence.record import Line
from anchorscope.pathways.baselines import within_strata
from anchorscope.pathways.intervals import FloatArray, Resamples
from anchorscope.pathways.splits import cohens_kappa
from anchorscope.probes.fit import choose_strength, fit_layer
from anchorscope.probes.folds import Folds
from anchorscope.probes.readouts import read_out

if TYPE_CHECKING:
    from anchorscope.probes.readouts import Readouts

TENTHS, FIFTHS = 10, 5
MIN_GROUP = 30
STRENGTHS = (1e-4, 1e-3, 1e-2)


class Groups:
    """Who is Q-Anchored at the layer half-way up, and what is predicted there."""

    def __init__(self, readouts: Readouts) -> None:
        self.layer = round((readouts.layers - 1) / 2)
        knockout = readouts.conditions.index("knockout")
        both = readouts.logits[[0, knockout]][..., self.layer].astype(np.float64)  # (2, repeat, part, sample)
        self.clean: FloatArray = both[0, :, 0].mean(axis=0)
        """(sample): the whole probes' logit, mean over repeats"""
        self.change: FloatArray = both[1, :, 0].mean(axis=0) - self.clean
        """(sample): what the knockout does to it"""
        self.halves: BoolArray = ((both[0] > 0) != (both[1] > 0))[:, 1:]
        """(repeat, half, sample): whether the predicted class flips"""
        self.q: BoolArray = self.halves.mean(axis=(0, 1)) >= 0.5
        """(sample): Q-Anchored"""
        self.predicted: BoolArray = self.clean > 0
        """(sample): predicted correct"""


def difference(values: FloatArray, groups: Groups, inverse: FloatArray, weights: FloatArray) -> FloatArray | None:
    """(1 + resample): Q minus A of a number, within predicted classes; None where none has enough."""
    known = np.isfinite(values)
    total, weight = np.zeros(len(weights)), 0.0
    for side in (groups.predicted, ~groups.predicted):
        members = [side & known & group for group in (groups.q, ~groups.q)]
        sizes = [int(each.sum()) for each in members]
        if min(sizes) < MIN_GROUP:
            continue
        counted = [weights[:, each] * inverse[each] for each in members]
        with np.errstate(divide="ignore", invalid="ignore"):
            q, a = (count @ values[each] / count.sum(axis=1) for count, each in zip(counted, members, strict=True))
        pairs = sizes[0] * sizes[1] / sum(sizes)
        total, weight = total + pairs * (q - a), weight + pairs
    return total / weight if weight else None


def boundary_lines(
    groups: Groups,
    labels: BoolArray,
    probability: FloatArray,
    popularity: FloatArray,
    entropy: FloatArray,
    confidence: FloatArray,
    drawn: Resamples,
) -> Iterator[Line]:
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
        found = difference(values, groups, inverse, drawn.samples)
        if found is not None:
            yield line("boundary", name, found, int(np.isfinite(values).sum()), "", "Q-A")


def awareness_lines(
    groups: Groups, states: FloatArray, clusters: IntArray, folds: Folds, drawn: Resamples, seed: int
) -> Iterator[Line]:
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
        within_strata(label, each[:, :, None], strata, weights, votes)[:, 0]
        for each in (scores, -np.abs(groups.clean)[None])
    )
    whole = within_strata(label, scores[:, :, None], np.zeros(len(label)), weights, votes)[:, 0]
    yield line("awareness", "auroc", whole, len(label))
    yield line("awareness", "auroc_at_equal_logit", own, len(label))
    yield line("awareness", "auroc_of_confidence", confident, len(label))
    yield line("awareness", "beyond_confidence", own - confident, len(label))


def shift_lines(groups: Groups) -> Iterator[Line]:
    """Two groups, or a continuum, in what the knockout does to the logit? Within fifths of the clean logit."""
    yield from dip_lines("shift", groups.change, bins_of(groups.clean, FIFTHS))


def dip_lines(experiment: str, values: FloatArray, strata: IntArray | None = None) -> Iterator[Line]:
    """The dip, and how often one as large, or as small, comes from either reference."""
    exact = np.asarray(values, np.float64)
    dip = dip_test(exact) if strata is None else dip_within(exact, strata)
    for name, number in (
        ("dip", dip.statistic),
        ("dip_p_unimodal", dip.p_unimodal),
        ("dip_p_two_groups", dip.p_two_groups),
    ):
        yield line(experiment, name, np.array([number]), len(values))


def saliency_lines(groups: Groups, members: IntArray, of: dict[str, FloatArray], drawn: Resamples) -> Iterator[Line]:
    """Saliency (sample) of some members: Q minus A within a predicted class, and the dip of its logarithm."""
    for name, values in of.items():
        every = np.full(len(groups.clean), np.nan)
        # none where an answer is one token: its likelihood does not depend on what that token sees
        every[members[values > 0]] = np.log(values[values > 0])
        found = difference(every, groups, np.ones(len(every)), drawn.samples)
        if found is not None:
            yield line("saliency", f"log_{name}", found, int(np.isfinite(every).sum()), "", "Q-A")
        experiment = "saliency" if name == "of_logit" else "saliency_of_loss"
        known = every[members][np.isfinite(every[members])]
        if len(known) >= MIN_GROUP:
            yield from dip_lines(experiment, known)


def stability_lines(
    groups: Groups, drawn: Resamples, members: IntArray, prompts: Sequence[FloatArray]
) -> Iterator[Line]:
    """Kappa of labels between the halves of the probes, and between the study's prompt and others.

    `prompts`: for each set of shots (clean or knockout, sample): logits at the layer half-way up of the members.
    """
    agreed = [cohens_kappa(first[:, None], second[:, None], drawn.samples)[:, 0] for first, second in groups.halves]
    yield line("stability", "kappa_halves", np.mean(agreed, axis=0), len(groups.q))
    own = (groups.clean > 0) != (groups.clean + groups.change > 0)
    for number, (clean, knockout) in enumerate(prompts, 1):
        known = np.isfinite(clean)
        rows = members[known]
        flipped = (clean[known] > 0) != (knockout[known] > 0)
        found = cohens_kappa(own[rows][:, None], flipped[:, None], drawn.samples[:, rows])[:, 0]
        yield line("stability", f"kappa_prompt_{number}", found, len(rows))
