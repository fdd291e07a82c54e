"""The same probes with some of the questions left out: what intervals need to know of how probes come about.

Samples are dealt to groups, clusters whole. For each group the probes are fitted again without it, and read out all
samples. How far a number moves when a group is left out of the training, of the testing, or of both, says how much of
its spread the resampling of fixed read-outs misses (pathways/widening.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anchorscope.probes.fit import choose_strength, fit_layer
from anchorscope.probes.folds import Folds, checked_labels, deal
from anchorscope.probes.logistic import FloatArray
from anchorscope.probes.probe import LayerProbes
from anchorscope.probes.readouts import read_out

LEFT_OUT_GROUPS = 20
FRACTIONS = (0.25, 0.5, 0.75, 1.0)  # layers at which it is done: their spread is that of the others


def jackknife_layers(layers: int) -> list[int]:
    return sorted({round((layers - 1) * fraction) for fraction in FRACTIONS})


def make_groups(labels: ArrayLike, clusters: ArrayLike, seed: int, groups: int = LEFT_OUT_GROUPS) -> NDArray[np.int64]:
    """(sample): the group with which it is left out; no cluster is split."""
    right, cluster = checked_labels(labels, clusters)
    return deal(right, cluster, groups, [seed, groups])[cluster]


def jackknifed(
    states: FloatArray,
    labels: ArrayLike,
    clusters: ArrayLike,
    folds: Folds,
    strengths: Sequence[float],
    groups: NDArray[np.int64],
    seed: int,
) -> NDArray[np.float32]:
    """(1 + group, repeat, sample): read-outs of states (sample, width) by probes fitted on all, and without each group.

    The strength is chosen here, from all samples, and kept when a group is left out.
    """
    strength = choose_strength([0], lambda _: states, labels, clusters, folds, strengths, seed=seed)
    probes = fit_layer(states, labels, clusters, folds, strength, seed=seed, parts=1)
    without = jackknife_layer([states], labels, clusters, folds, float(strength), probes, groups)
    return np.concatenate([read_out(probes, states, folds).astype(np.float32)[None], without[0]])[:, :, 0]


def jackknife_layer(
    states: Sequence[FloatArray],
    labels: ArrayLike,
    clusters: ArrayLike,
    folds: Folds,
    strength: float,
    probes: LayerProbes,
    groups: NDArray[np.int64],
) -> NDArray[np.float32]:
    """(condition, group, repeat, part, sample): read-outs by probes fitted without each group.

    `states` are (sample, width) of each condition, the clean ones first, on which `probes` were fitted. Their
    standardisation and temperatures are kept. A group without which a training set would lack a class stays in it.
    """
    from anchorscope.probes.solver import Fits, Near, Shared  # with torch: only where something is fitted

    right, _ = checked_labels(labels, clusters)
    count, shape = int(groups.max()) + 1, probes.bias.shape
    read = np.empty((len(states), count, shape[0], shape[2], len(right)), np.float32)
    shared, without = Shared(states[0]), groups != np.arange(count)[:, None]  # (group, sample)
    for repeat, part in np.ndindex(shape[0], shape[2]):
        # 1. the training sets of all folds, each without every group
        training = np.stack([folds.training(repeat, fold, part) for fold in range(shape[1])])
        fitted = training[:, None] & without
        enough = [[0 < right[rows].sum() < rows.sum() for rows in of_fold] for of_fold in fitted]
        fitted = np.where(np.array(enough)[..., None], fitted, training[:, None]).reshape(-1, len(right))
        of_set = np.repeat(np.arange(shape[1]), count)
        # 2. each begins where the probe fitted on all of them ended, before its temperature
        hot = probes.temperature[repeat, :, part]
        weight = probes.weight[repeat, :, part].astype(np.float64) * hot[:, None]
        bias = probes.bias[repeat, :, part] * hot + weight @ shared.middle
        near = Near(weight[of_set], bias[of_set])
        solved = shared.solve(right, Fits(training, of_set, fitted, np.full(len(of_set), strength)), near)
        # 3. each sample by the probes of the fold in which it is tested
        for fold in range(shape[1]):
            tested, own = folds.fold[repeat] == fold, of_set == fold
            for condition, activations in enumerate(states):
                logits = (activations[tested] - solved.middle) @ solved.weight[own].T + solved.bias[own]
                read[condition, :, repeat, part, tested] = logits / probes.temperature[repeat, fold, part]
    return read
