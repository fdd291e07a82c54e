"""Out-of-fold scores: every detector is fitted on the training folds and scores the held-out fold.

A detector gets a `Training`, in which test samples are not. So layer, C, sign, gate, β and stack weights are chosen
without them, whatever a detector does. `shuffled` is the null: with permuted labels nothing can be known, and a
detector whose interval does not hold 0.5 has seen what it should not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.catalogue import ScorerFitter
from anchorscope.detectors.inputs import Floats, Inputs, States
from anchorscope.detectors.training import Training
from anchorscope.pathways.intervals import Estimate, estimate, mean_auroc, resample
from anchorscope.probes.folds import Folds, IntArray, make_folds
from anchorscope.probes.logistic import BoolArray
from anchorscope.progress import Advance
from anchorscope.study.terms import StateName

FOLDS = 5


@dataclass(frozen=True)
class Labelled:
    """Labelled samples, for evaluation and as a source of training sets."""

    inputs: Inputs
    """Inputs of the detectors."""
    right: BoolArray
    """(sample): whether the answer is right"""
    clusters: IntArray
    """(sample): cluster"""
    probability: Floats
    """(sample): probability with which the sample was drawn"""
    groups: Sequence[str] = ()
    """(sample): relation of its question, or its dataset; empty where nobody says"""

    def training(self, rows: NDArray[np.intp], seed: int = 0) -> Training:
        """Training set of the selected samples."""
        return Training(self.inputs.of(rows), self.right[rows], self.clusters[rows], seed)

    @property
    def base_rate(self) -> float:
        """Share of wrong answers among all answers."""
        weight = 1 / self.probability
        return float(weight[~self.right].sum() / weight.sum())

    def of(self, rows: NDArray[np.intp]) -> Labelled:
        """The selected samples."""
        groups = [self.groups[row] for row in rows] if self.groups else ()
        return Labelled(self.inputs.of(rows), self.right[rows], self.clusters[rows], self.probability[rows], groups)


def cross_scored(
    samples: Labelled,
    fitters: Mapping[str, ScorerFitter],
    folds: Folds,
    seed: int = 0,
    advance: Advance = lambda _: None,
    again: tuple[Inputs, IntArray] | None = None,
    at_once: int = 1,
) -> dict[str, Floats]:
    """(repeat, sample) by detector: out-of-fold logit that the answer is right.

    `again`: further answers to some of the questions, and which of the samples asked it. They stand behind the samples;
    nan where a detector looks at what they do not have. `at_once`: how many folds are fitted side by side.
    """
    size = folds.fold.shape[1]
    more, question = again or (Inputs([], [], []), np.empty(0, np.int64))
    out = {name: np.full((folds.repeats, size + len(more)), np.nan) for name in fitters}

    def score(held_out: tuple[int, int]) -> None:
        repeat, fold = held_out
        test = np.flatnonzero(folds.fold[repeat] == fold)
        training = samples.training(np.flatnonzero(folds.training(repeat, fold, 0)), seed)
        tested = samples.inputs.of(test)
        others = np.flatnonzero(folds.fold[repeat][question] == fold)
        further = more.of(others)
        for name, fitter in fitters.items():
            fitted = fitter.fit(training)
            out[name][repeat, test] = fitted.logits(tested)
            if len(others) and further.has(fitted.needs):
                out[name][repeat, size + others] = fitted.logits(further)
        advance(1)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(score, product(range(folds.repeats), range(folds.count))))
    return out


def width_of(samples: Labelled, fitters: Mapping[str, ScorerFitter]) -> int:
    """How many numbers of each sample the detectors are fitted on, over all layers."""
    read = {need for fitter in fitters.values() for need in fitter.needs}
    kinds = [states for name, states in samples.inputs.states.items() if name in read]
    return sum(states.layers * states.layer(0).shape[1] for states in kinds)


def shuffled(samples: Labelled, seed: int) -> Labelled:
    """The same samples with permuted labels, which no detector can predict."""
    right = np.random.default_rng([seed, 13]).permutation(samples.right)
    return Labelled(samples.inputs, right, samples.clusters, samples.probability)


def area_of(
    samples: Labelled, scores: Mapping[str, Floats], resamples: int = 1000, seed: int = 0, widened: float = 1.0
) -> dict[str, Estimate]:
    """AUROC of each detector with its 95 % interval over clusters and repeats, widened for the variance of training.

    `widened`: by which factor (score_widening.py); 1 where the samples took no part in the training.
    """
    repeats = len(next(iter(scores.values())))
    drawn = resample(samples.clusters, repeats, resamples, seed)
    return {
        name: estimate(mean_auroc(samples.right, logits[:, :, None], drawn)[:, 0], widened)
        for name, logits in scores.items()
    }


def folds_for(samples: Labelled, repeats: int, folds: int = 5, seed: int = 0) -> Folds:
    """Outer folds, which do not split clusters."""
    return make_folds(samples.right, samples.clusters, repeats, folds, seed, halves=False)


def pooled(sets: Sequence[Labelled]) -> Labelled:
    """Join the samples of several datasets. Their clusters stay separate, and states are read on first use."""
    if len(sets) == 1:
        return sets[0]
    first = sets[0].inputs
    names = [name for name in first.states if all(name in samples.inputs.states for samples in sets)]

    def joined(name: StateName) -> States:
        parts = [samples.inputs.states[name] for samples in sets]
        return States(parts[0].layers, lambda layer: np.concatenate([part.layer(layer) for part in parts]))

    numbers = {
        name: np.concatenate([samples.inputs.numbers[name] for samples in sets])
        for name in first.numbers
        if all(name in samples.inputs.numbers for samples in sets)
    }
    inputs = Inputs(
        [f"{place}/{name}" for place, samples in enumerate(sets) for name in samples.inputs.ids],
        [text for samples in sets for text in samples.inputs.questions],
        [text for samples in sets for text in samples.inputs.answers],
        numbers,
        {name: joined(name) for name in names},
    )
    starts = np.cumsum([0, *(int(samples.clusters.max()) + 1 for samples in sets[:-1])])
    return Labelled(
        inputs,
        np.concatenate([samples.right for samples in sets]),
        np.concatenate([samples.clusters + start for samples, start in zip(sets, starts, strict=True)]),
        np.concatenate([samples.probability for samples in sets]),
        [name for samples in sets for name in samples.groups] if all(samples.groups for samples in sets) else (),
    )
