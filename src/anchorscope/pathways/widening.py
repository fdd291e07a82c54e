"""By how much the bootstrap of fixed read-outs is too narrow, since the probes come from the same samples.

A sample counts twice: it is tested, and it trains the probes that test others. Resampled read-outs know the first only,
and where a sample helps both (as for AUROC) or decides who is in a group (as for ΔP of Q) intervals came out up to half
as wide as they should. So groups of samples are left out of testing, of training, and of both (a jackknife):

    tested  = spread when a group is left out of testing: what the bootstrap sees
    both    = spread when it is left out of both
    crossed = spread of what leaving one group out of training and another out of testing does beyond either

and an interval is widened by √((both − crossed / 2) / tested), pooled over the layers where it was done, and never
narrowed. Half of `crossed`, and no widening for ΔAUROC, for ΔP of A and for differences to `permuted`, is what
simulations support: `python checks/interval_coverage.py` makes the table of coverage.
A difference of two fits (refits; question-only probes of two models; two detectors) is widened as any other number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.pathways.intervals import Auroc, FloatArray, Resamples, mean_auroc
from anchorscope.pathways.record import Key
from anchorscope.pathways.shifts import WHOLE, resampled, shift_of
from anchorscope.pathways.splits import GROUPS, split

if TYPE_CHECKING:
    from anchorscope.probes.readouts import Readouts
    from anchorscope.probes.recorded import LeftOut

WIDEST = 4.0
REFIT = "delta_auroc_refit"


class Family(NamedTuple):
    """Numbers that are widened alike."""

    statistic: str
    """auroc, delta_auroc_refit (with its condition), delta_p or share"""
    split: str
    """none, whole or half"""
    group: str
    """all, Q, A or Q-A"""

    @classmethod
    def of(cls, key: Key) -> Family:
        """Of a number of the table."""
        name = "auroc" if key.statistic.startswith("auroc") else key.statistic
        if key.condition.endswith("-permuted"):
            name += " beyond permuted"  # both sides are read by the same probes: what training adds is taken off
        if name == REFIT:
            name += f" of {key.condition}"  # two fits, of which one is that of the condition
        split = "none" if key.split == "none" else "half" if key.split.endswith("_half") else "whole"
        return cls(name, split, key.group)


def widenings(
    readouts: Readouts, left_out: LeftOut, refit: Mapping[str, FloatArray] | None = None
) -> dict[Family, float]:
    """How much wider the intervals of each family are than the bootstrap's; one that is not named is not widened.

    `refit`: by condition, (repeat, sample, layer), its states by probes fitted on them, where these are asked for.
    """
    weights, at = tested_without(left_out.groups), left_out.layers
    own = {name: np.concatenate([whole[None][..., at], left_out.refit[name]]) for name, whole in (refit or {}).items()}
    logits = np.concatenate([readouts.logits[None, :2][..., at].astype(np.float32), left_out.logits])
    trained = [  # all train, then all but group g
        _values(readouts, read, weights, {name: by_fit[fit] for name, by_fit in own.items()})
        for fit, read in enumerate(logits)
    ]
    return {
        family: widening(np.stack([values[family] for values in trained]))
        for family in trained[0]
        if family.group != "A"
    }


def tested_without(groups: NDArray[np.int64]) -> FloatArray:
    """(1 + group, sample): who is tested, first all, then all but each group."""
    count = int(groups.max()) + 1
    weights = np.ones((1 + count, len(groups)), np.float32)
    weights[1:][groups == np.arange(count)[:, None]] = 0
    return weights


def moved_areas(labels: NDArray[np.bool_], groups: NDArray[np.int64], trained: FloatArray) -> FloatArray:
    """(1 + g, 1 + h): AUROC, mean over repeats, with group g left out of training and h of testing.

    `trained`: (1 + g, repeat, sample), read-outs by probes fitted on all samples, then by those without each group.
    """
    auroc = Auroc(labels, tested_without(groups))
    areas: FloatArray = np.stack([auroc(scores.T).mean(axis=1) for scores in trained])
    return areas


def widening(moved: FloatArray) -> float:
    """The factor for one number, (1 + g, 1 + h) with g left out of training and h of testing; or (…, layer), pooled."""
    values = np.asarray(moved, np.float64)
    by_layer = np.moveaxis(values.reshape(*values.shape[:2], -1), -1, 0)
    tested, both, crossed = np.sum([spreads(of_layer) for of_layer in by_layer], axis=0)
    return float(np.sqrt(np.clip((both - crossed / 2) / tested, 1, WIDEST**2))) if tested > 0 else 1.0


def spreads(moved: FloatArray) -> tuple[float, float, float]:
    """tested, both and crossed, from one number with group g left out of training and h of testing, (1 + g, 1 + h)."""
    if not np.isfinite(moved).all():
        return 0.0, 0.0, 0.0
    whole, count = moved[0, 0], len(moved) - 1
    by_test, by_train = moved[0, 1:] - whole, moved[1:, 0] - whole
    beyond = moved[1:, 1:] - moved[1:, :1] - moved[:1, 1:] + whole
    beyond = beyond - beyond.mean(axis=0) - beyond.mean(axis=1)[:, None] + beyond.mean()
    factor = (count - 1) / count
    pairs = (beyond + beyond.T)[np.triu_indices(count, 1)]
    crossed = factor**4 * ((pairs**2).sum() + (np.diag(beyond) ** 2).sum())
    return factor * count * by_test.var(), factor * count * (by_test + by_train).var(), float(crossed)


def _values(
    readouts: Readouts, logits: FloatArray, weights: FloatArray, refit: Mapping[str, FloatArray]
) -> dict[Family, FloatArray]:
    """Each number in every row of weights: (row, layer). `logits` (condition, repeat, part, sample, layer)."""
    reduced = replace(readouts, conditions=("clean", "knockout"), logits=logits, drift=np.zeros_like(logits))
    votes = np.ones((len(weights), reduced.repeats), np.float32)
    auroc = Auroc(reduced.labels.astype(bool), weights)
    base = resampled(reduced, Resamples(weights, votes), auroc)
    shift = shift_of(reduced, base, "knockout", "none")
    values: dict[Family, FloatArray] = defaultdict(lambda: np.zeros(0))
    clean = mean_auroc(base.labels, base.clean[:, WHOLE], base.resamples, kernel=auroc)
    values[Family("auroc", "none", "all")] = clean
    for condition, scores in refit.items():
        own = mean_auroc(base.labels, scores, base.resamples, kernel=auroc)
        values[Family.of(Key(REFIT, condition))] = own - clean
    for name in ("whole", "half"):
        groups = split(base, shift, None, name == "half", ("all",))
        q, a = groups.mean[0, 0], groups.mean[0, 1]
        for group, number in (("Q", q), ("A", a), ("Q-A", q - a)):
            values[Family("delta_p", name, group)] = number
        for place, group in enumerate(GROUPS[:2]):
            values[Family("share", name, group)] = groups.share[0, place]
    return dict(values)
