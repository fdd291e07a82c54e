from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from anchorscope.probes.fit import fit_layer
from anchorscope.probes.folds import make_folds
from anchorscope.probes.jackknife import jackknife_layer, jackknife_layers, jackknifed, make_groups
from anchorscope.probes.readouts import read_out

N, WIDTH, C = 120, 6, 0.05


def data(seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = rng.random(N) < 0.4
    clean = rng.normal(size=(N, WIDTH)).astype(np.float32) + np.where(labels, 0.4, -0.4)[:, None].astype(np.float32)
    return clean, clean + rng.normal(size=clean.shape).astype(np.float32), labels, np.arange(N) // 2


def test_groups_are_even_and_split_no_cluster():
    _, _, labels, clusters = data()
    groups = make_groups(labels, clusters, seed=1, groups=6)
    assert set(groups) == set(range(6))
    assert all(len(set(groups[clusters == each])) == 1 for each in set(clusters))
    assert max(np.bincount(groups)) - min(np.bincount(groups)) <= 6


def test_a_probe_without_a_group_is_the_one_scikit_learn_fits_without_it():
    clean, other, labels, clusters = data()
    folds = make_folds(labels, clusters, repeats=2, folds=3)
    probes = fit_layer(clean, labels, clusters, folds, C)
    groups = make_groups(labels, clusters, seed=1, groups=5)
    read = jackknife_layer([clean, other], labels, clusters, folds, C, probes, groups)
    assert read.shape == (2, 5, 2, 3, N)
    for group, repeat, fold, part in [(0, 0, 0, 0), (3, 1, 2, 0), (4, 0, 1, 2), (2, 1, 0, 1)]:
        train = folds.training(repeat, fold, part)
        mean, spread = clean[train].mean(axis=0), clean[train].std(axis=0)
        kept = train & (groups != group)
        model = LogisticRegression(C=C * train.sum() / kept.sum(), class_weight="balanced", tol=1e-10, max_iter=10_000)
        model.fit((clean[kept] - mean) / spread, labels[kept])
        tested = folds.fold[repeat] == fold
        for condition, states in enumerate((clean, other)):
            wanted = model.decision_function((states[tested] - mean) / spread) / probes.temperature[repeat, fold, part]
            np.testing.assert_allclose(read[condition, group, repeat, part, tested], wanted, rtol=2e-3, atol=2e-3)


def test_leaving_nobody_out_is_the_probe_itself():
    clean, _, labels, clusters = data()
    folds = make_folds(labels, clusters, repeats=1, folds=3)
    probes = fit_layer(clean, labels, clusters, folds, C)
    groups = np.zeros(N, np.int64)  # one group: without it no class is left, so it stays
    read = jackknife_layer([clean], labels, clusters, folds, C, probes, groups)
    np.testing.assert_allclose(read[0, 0], read_out(probes, clean, folds), atol=1e-3)


def test_probes_of_one_matrix_are_fitted_on_all_and_without_each_group():
    clean, _, labels, clusters = data()
    folds = make_folds(labels, clusters, repeats=2, folds=3)
    groups = make_groups(labels, clusters, seed=1, groups=5)
    read = jackknifed(clean, labels, clusters, folds, [C], groups, seed=4)
    probes = fit_layer(clean, labels, clusters, folds, C, seed=4, parts=1)
    assert read.shape == (6, 2, N)
    np.testing.assert_allclose(read[0], read_out(probes, clean, folds)[:, 0], rtol=1e-5)
    without = jackknife_layer([clean], labels, clusters, folds, C, probes, groups)
    np.testing.assert_array_equal(read[1:], without[0, :, :, 0])


@pytest.mark.parametrize(("layers", "at"), [(30, [7, 14, 22, 29]), (18, [4, 8, 13, 17]), (1, [0]), (2, [0, 1])])
def test_it_is_done_at_four_layers(layers: int, at: list[int]):
    assert jackknife_layers(layers) == at
