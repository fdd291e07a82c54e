"""Factors by which intervals of detectors exceed resamples of their scores, because detectors are fitted on samples.

As for pathways (pathways/widening.py), groups of samples are left out of training, of testing and of both. To fit all
detectors again without every group would take many times as long as the comparison itself. So probes stand for them, in
one repeat: of the answer at one layer, of the question at one layer, and of all kinds of states at several layers side
by side. Every detector has the factor of these probes, pooled as it is over layers elsewhere, and every difference that
of their differences. `python checks/detector_promises.py coverage` counts how often such intervals hold the truth; the
largest factor among the probes made them too wide there.
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
"""Positions at which the clean states are read. The first two are also read by themselves."""
SIDE_BY_SIDE = 4  # number of layers of each kind of states


class Widening(NamedTuple):
    """Factors by which intervals are wider than those from resamples of fixed scores (at least 1)."""

    auroc: float = 1.0
    """Factor for AUROC."""
    difference: float = 1.0
    """Factor for the difference between two detectors' AUROC."""


def widening_of(samples: Labelled, site: Site, seed: int = 0) -> Widening:
    """Factors for detectors of some samples. Without states of these samples, nothing is widened."""
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

    by_themselves = [moved([states.layer(layer)]) for states in kinds[:2] for layer in layers(states.layers, FRACTIONS)]
    spaced = np.linspace(0, 1, SIDE_BY_SIDE).tolist()
    together = moved([states.layer(layer) for states in kinds for layer in layers(states.layers, spaced)])
    stand_for_all = [*by_themselves, together]
    differences = [first - second for first, second in combinations(stand_for_all, 2)]
    return Widening(*(widening(np.stack(numbers, axis=-1)) for numbers in (stand_for_all, differences)))


def mean_widening(cells: Sequence[Widening]) -> Widening:
    """Factors for a mean over independent cells. Variances add, so each is a root mean square."""
    return Widening(*(float(factor) for factor in np.sqrt(np.square(cells).mean(axis=0))))
