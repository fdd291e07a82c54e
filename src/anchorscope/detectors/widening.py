"""By how much intervals of detectors are wider than resamples of their scores: detectors come from the same samples.

As for pathways (pathways/widening.py), groups of samples are left out of training, of testing and of both. To fit all
detectors again without every group would take many times as long as the comparison itself. So probes stand for them, in
one repeat: of the answer at one layer, of the question at one layer, and of all kinds of states at several layers side
by side. The largest factor among these is that of every detector, and the largest among their differences that of every
difference. `python checks/detector_promises.py coverage` counts how often such intervals hold the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from anchorscope.detectors.crossfit import FOLDS, Labelled, folds_for
from anchorscope.detectors.inputs import Floats
from anchorscope.detectors.training import FRACTIONS, STRENGTHS
from anchorscope.pathways.widening import moved_areas, widening
from anchorscope.probes.jackknife import jackknifed, make_groups
from anchorscope.study.terms import Site, StateName

POSITIONS = ("answer_last", "prompt_last", "answer_mean")
"""Where the states of the clean pass are read: the first two also by themselves."""
SIDE_BY_SIDE = 4  # layers of each kind of states


class Widening(NamedTuple):
    """Factors by which intervals are wider than resamples of fixed scores make them; never below 1."""

    auroc: float = 1.0
    """Of AUROC."""
    difference: float = 1.0
    """Of the difference between two detectors' AUROC."""


def widening_of(samples: Labelled, site: Site, seed: int = 0) -> Widening:
    """The factors for detectors of some samples; without states of these samples nothing is widened."""
    folds = folds_for(samples, 1, FOLDS, seed)
    groups = make_groups(samples.right, samples.clusters, seed)
    names = [StateName("clean", site, position) for position in POSITIONS]
    kinds = [samples.inputs.states[name] for name in names if name in samples.inputs.states]
    if not kinds:
        return Widening()

    def moved(blocks: Sequence[Floats]) -> Floats:
        """(1 + g, 1 + h): AUROC of a probe on blocks of features side by side."""
        strengths = [strength / len(blocks) for strength in STRENGTHS]
        fitted = (np.concatenate(blocks, axis=1), samples.right, samples.clusters, folds, strengths, groups, seed)
        return moved_areas(samples.right, groups, jackknifed(*fitted))

    def layers(count: int, fractions: Sequence[float]) -> list[int]:
        return sorted({round(fraction * (count - 1)) for fraction in fractions})

    stand_for_all = [
        np.stack([moved([states.layer(layer)]) for layer in layers(states.layers, FRACTIONS)], axis=-1)
        for states in kinds[:2]
    ]
    spaced = np.linspace(0, 1, SIDE_BY_SIDE)
    blocks = [states.layer(layer) for states in kinds for layer in layers(states.layers, spaced.tolist())]
    stand_for_all.append(np.repeat(moved(blocks)[..., None], stand_for_all[0].shape[-1], axis=-1))
    return Widening(
        max(widening(areas) for areas in stand_for_all),
        max(widening(first - second) for first, second in combinations(stand_for_all, 2)),
    )


def mean_widening(cells: Sequence[Widening]) -> Widening:
    """The factors of a mean over independent cells: variances add up, so it is the root of the mean square."""
    return Widening(*(float(factor) for factor in np.sqrt(np.square(cells).mean(axis=0))))
