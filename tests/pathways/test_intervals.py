"""Resamples are weights: each weight must do what repeating the row would do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from anchorscope.pathways.intervals import Auroc, average, band, centred, interval, resample, share, wilson

CLUSTERS = np.array([7, 7, 7, 2, 2, 9, 4, 4, 5, 5, 5, 5])


def test_row_zero_is_the_data():
    drawn = resample(CLUSTERS, repeats=3, resamples=4, seed=0)
    assert len(drawn) == 5
    assert (drawn.samples[0] == 1).all()
    assert (drawn.repeats[0] == 1).all()


def test_a_resample_draws_as_many_clusters_and_repeats_as_there_are_and_never_splits_a_cluster():
    drawn = resample(CLUSTERS, repeats=3, resamples=200, seed=1)
    assert (drawn.repeats.sum(axis=1) == 3).all()
    for row in drawn.samples:
        by_cluster = [set(row[cluster == CLUSTERS]) for cluster in np.unique(CLUSTERS)]
        assert all(len(weights) == 1 for weights in by_cluster)
        assert sum(weights.pop() for weights in by_cluster) == 5
    # Each cluster is drawn once on average, and left out in (4/5)^5 = 33 % of resamples.
    assert drawn.samples[1:].mean() == pytest.approx(1, abs=0.1)
    assert (drawn.samples[1:] == 0).mean() == pytest.approx(0.8**5, abs=0.06)


def test_the_seed_decides():
    one, same, other = (resample(CLUSTERS, 3, 10, seed) for seed in (0, 0, 1))
    assert (one.samples == same.samples).all()
    assert (one.repeats == same.repeats).all()
    assert (one.samples != other.samples).any()


@pytest.mark.parametrize("decimals", [0, 1, 6])  # many ties, some, none
def test_auroc_is_that_of_sklearn_by_weight_and_by_repeated_rows(decimals):
    rng = np.random.default_rng(decimals)
    labels = rng.random(60) < 0.4
    scores = np.round(rng.normal(size=(60, 2)) + labels[:, None], decimals).astype(np.float32)
    drawn = resample(np.arange(60) // 2, 1, 20, seed=0)
    areas = Auroc(labels, drawn.samples)(scores)
    for weights, by_layer in zip(drawn.samples, areas, strict=True):
        rows = np.repeat(np.arange(60), weights.astype(int))
        for layer, area in enumerate(by_layer):
            assert area == pytest.approx(roc_auc_score(labels, scores[:, layer], sample_weight=weights), abs=1e-12)
            assert area == pytest.approx(roc_auc_score(labels[rows], scores[rows, layer]), abs=1e-12)


def test_auroc_without_one_of_the_classes_is_undefined():
    weights = np.array([[1, 1, 1], [0, 2, 1]], np.float32)
    areas = Auroc(np.array([True, False, False]), weights)(np.array([[2.0], [1.0], [3.0]], np.float32))
    assert areas[0, 0] == 0.5
    assert np.isnan(areas[1, 0])


def test_interval_is_the_percentile_interval_of_what_is_defined():
    rng = np.random.default_rng(0)
    replicates = rng.normal(size=(201, 3))
    replicates[5:90, 1] = np.nan
    replicates[:, 2] = np.nan
    low, high = interval(replicates)
    for column in (0, 1):
        expected = np.nanpercentile(replicates[:, column], [2.5, 97.5])
        assert [low[column], high[column]] == pytest.approx(expected)
    assert np.isnan(low[2])
    assert np.isnan(high[2])


def test_without_resamples_there_is_no_interval():
    low, high = interval(np.empty((0, 4)))
    assert np.isnan(low).all()
    assert high.shape == (4,)


def test_average_leaves_out_what_is_undefined_with_its_weight():
    values = np.array([[1.0, np.nan, np.nan], [4.0, 4.0, np.nan]])
    weights = np.array([[2.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    assert average(values, weights) == pytest.approx([2.0, 4.0, np.nan], nan_ok=True)


@pytest.mark.parametrize(("count", "total"), [(0, 10), (1, 3), (84, 1_000), (1_000, 1_000), (500, 1_000)])
def test_wilson_is_scipys(count: int, total: int):
    expected = binomtest(count, total).proportion_ci(method="wilson")
    assert wilson(count, total) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_nothing_known_is_said_so():
    assert wilson(0, 0) == (0.0, 1.0)
    assert share(84, 1_000) == "84 of 1,000, 8.4 % (6.8 to 10.3)"


def test_replicates_are_centred_on_the_value_and_spread_out():
    replicates = np.array([[1.0, 5.0], [3.0, 5.0], [5.0, 7.0], [np.nan, 9.0]])
    moved = centred(replicates, widened=2)
    np.testing.assert_allclose(moved, [[-1, 1], [3, 5], [np.nan, 9]])
    np.testing.assert_allclose(np.nanmean(moved, axis=0), replicates[0])


def test_a_band_holds_at_all_layers_at_once_as_often_as_it_says():
    rng = np.random.default_rng(0)
    for common in (0.0, 0.9):  # layers that have nothing, and much, in common
        noise = np.sqrt(common) * rng.normal(size=(4000, 1)) + np.sqrt(1 - common) * rng.normal(size=(4000, 12))
        spread = np.linspace(1, 5, 12)
        low, high = band(noise[:2000] * spread, np.zeros(12))
        new = noise[2000:] * spread
        assert ((low <= new) & (new <= high)).all(axis=1).mean() == pytest.approx(0.95, abs=0.02)
        pointwise = interval(noise[:2000] * spread)
        assert (low < pointwise[0]).all()
        assert (high > pointwise[1]).all()


def test_a_band_leaves_out_layers_without_numbers():
    replicates = np.array([[1.0, np.nan], [2.0, 1.0], [3.0, 2.0]])
    low, high = band(replicates, np.array([2.0, 1.0]))
    assert np.isnan(low[1])
    assert np.isnan(high[1])
    assert low[0] < 2 < high[0]
    assert np.isnan(band(np.empty((0, 2)), np.zeros(2))).all()
