"""How far detectors carry: from one set to another, from three to the fourth, and from few labels to many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from anchorscope.detectors.catalogue import ScorerFitter
from anchorscope.detectors.crossfit import Labelled
from anchorscope.detectors.inputs import Floats
from anchorscope.detectors.training import area
from anchorscope.pathways.intervals import mean_auroc, resample
from anchorscope.probes.folds import Folds
from anchorscope.progress import Advance

Pool = Callable[[Sequence[Labelled]], Labelled]
"""The samples of several sets as one."""


class Carried(NamedTuple):
    """A detector fitted on some sets and tested on another."""

    detector: str
    """Its name."""
    fitted: str
    """What it was fitted on: a set, or `others`, the three it is not tested on."""
    tested: str
    """What it was tested on."""
    replicates: Floats
    """(1 + resample): AUROC"""


def carried(
    sets: Mapping[str, Labelled],
    fitters: Mapping[str, ScorerFitter],
    pool: Pool,
    resamples: int = 500,
    seed: int = 0,
    advance: Advance = lambda _: None,
) -> list[Carried]:
    """Fit on one set, test on each other; and on the three others together. The diagonal is the comparison's."""
    out = []
    for tested, samples in sets.items():
        drawn = resample(samples.clusters, 1, resamples, seed)
        sources = {name: each for name, each in sets.items() if name != tested}
        if len(sources) > 1:
            sources["others"] = pool(list(sources.values()))
        for fitted, source in sources.items():
            training = source.training(np.arange(len(source.right)), seed)
            for name, fitter in fitters.items():
                scores = fitter.fit(training).logits(samples.inputs)
                areas = mean_auroc(samples.right, scores[None, :, None], drawn)[:, 0]
                out.append(Carried(name, fitted, tested, areas))
            advance(1)
    return out


def learning(
    samples: Labelled,
    fitters: Mapping[str, ScorerFitter],
    folds: Folds,
    sizes: Sequence[int],
    strata: Sequence[str] = (),
    seed: int = 0,
    advance: Advance = lambda _: None,
) -> dict[str, dict[int, list[float]]]:
    """By detector and number of labels: AUROC of each test fold, fitted on so many of its training samples.

    With `strata` AUROC is taken within each and averaged: to know which set an answer is of earns nothing.
    """
    out: dict[str, dict[int, list[float]]] = {name: {size: [] for size in sizes} for name in fitters}
    kinds = np.array(list(strata) or [""] * len(samples.right))
    for fold in range(folds.count):
        test = np.flatnonzero(folds.fold[0] == fold)
        train = np.flatnonzero(folds.training(0, fold, 0))
        order = np.random.default_rng([seed, fold, 19]).permutation(train)
        for size in sizes:
            if size > len(train):
                continue
            training = samples.training(np.sort(order[:size]), seed)
            for name, fitter in fitters.items():
                logits = fitter.fit(training).logits(samples.inputs.of(test))
                out[name][size].append(_within(logits, samples.right[test], kinds[test]))
            advance(1)
    return out


def _within(logits: Floats, right: np.ndarray, kinds: np.ndarray) -> float:
    """The mean over kinds of the AUROC within each."""
    each = [area(logits[kinds == kind], right[kinds == kind]) for kind in np.unique(kinds)]
    return float(np.nanmean(each))
