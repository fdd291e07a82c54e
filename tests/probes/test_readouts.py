from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.errors import ProbeError
from anchorscope.probes.fit import fit_layer
from anchorscope.probes.folds import Folds, make_folds
from anchorscope.probes.probe import LayerProbes
from anchorscope.probes.readouts import Readouts, by_sample, drift, read_out, read_out_new

N, WIDTH, REPEATS, FOLDS = 60, 7, 2, 3


@pytest.fixture(scope="module")
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def folds() -> Folds:
    return make_folds(np.arange(N) % 2, np.arange(N) // 2, REPEATS, FOLDS)


@pytest.fixture(scope="module")
def probes(rng: np.random.Generator) -> LayerProbes:
    shape = (REPEATS, FOLDS, 3)
    weight = rng.standard_normal((*shape, WIDTH)).astype(np.float32)
    return LayerProbes(weight, rng.standard_normal(shape), np.ones(shape))


@pytest.fixture(scope="module")
def clean(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((N, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def other(rng: np.random.Generator, clean: np.ndarray) -> np.ndarray:
    return clean + rng.standard_normal((N, WIDTH)).astype(np.float32) + 3


def test_each_sample_is_read_by_the_probe_of_its_own_fold(probes: LayerProbes, clean: np.ndarray, folds: Folds):
    found = read_out(probes, clean, folds)
    assert found.shape == (REPEATS, 3, N)
    for repeat, part, sample in np.ndindex(*found.shape):
        fold = folds.fold[repeat, sample]
        expected = sum(
            float(w) * float(x) for w, x in zip(probes.weight[repeat, fold, part], clean[sample], strict=True)
        )
        assert found[repeat, part, sample] == pytest.approx(expected + probes.bias[repeat, fold, part])
        assert not folds.training(repeat, fold, part)[sample]


def test_a_sample_does_not_reach_its_own_read_out_or_drift_but_as_what_is_read(clean: np.ndarray, folds: Folds):
    labels, clusters = np.arange(N) % 3 == 0, np.arange(N) // 2
    read = read_out(fit_layer(clean, labels, clusters, folds, 0.1), clean, folds)
    corrections = by_sample(drift(fit_layer(clean, labels, clusters, folds, 0.1), clean, clean + 1, folds), folds)
    for sample in (0, 31):
        own = clusters == clusters[sample]
        flipped = np.where(own, ~labels, labels)
        moved = np.where(own[:, None], 50.0, clean).astype(np.float32)
        probes = fit_layer(moved, flipped, clusters, folds, 0.1)
        again = read_out(probes, clean, folds)
        # fits are solved together: the way to a solution may change, the solution does not
        assert np.abs(again[..., own] - read[..., own]).max() < 1e-4 * np.abs(read).max()
        assert np.abs(again[..., ~own] - read[..., ~own]).max() > 1e-2 * np.abs(read).max()
        # its change under the condition takes no part in its own correction either
        wild = np.where(own[:, None], -1e3, moved + 1).astype(np.float32)
        corrected = by_sample(drift(probes, moved, wild, folds), folds)
        assert corrected[..., own] == pytest.approx(corrections[..., own], rel=1e-4)
        assert corrected[..., ~own] != pytest.approx(corrections[..., ~own], rel=1e-4)


def test_a_new_sample_is_read_by_the_mean_over_folds(probes: LayerProbes, rng: np.random.Generator):
    new = rng.standard_normal((11, WIDTH)).astype(np.float32)
    found = read_out_new(probes, new)
    assert found.shape == (REPEATS, 3, 11)
    for repeat, part, sample in np.ndindex(*found.shape):
        by_fold = [new[sample] @ probes.weight[repeat, f, part] + probes.bias[repeat, f, part] for f in range(FOLDS)]
        assert found[repeat, part, sample] == pytest.approx(np.mean(by_fold), abs=1e-5)


def test_drift_is_the_mean_change_of_training_read_outs(
    probes: LayerProbes, clean: np.ndarray, other: np.ndarray, folds: Folds
):
    found = drift(probes, clean, other, folds)
    for repeat, fold, part in np.ndindex(*found.shape):
        weight, changes = probes.weight[repeat, fold, part].astype(float), []
        for sample in range(N):
            trains = folds.fold[repeat, sample] != fold and (part == 0 or folds.half[repeat, sample] == part)
            if trains:
                changes.append(weight @ (other[sample].astype(float) - clean[sample]))
        assert found[repeat, fold, part] == pytest.approx(np.mean(changes))
    assert (drift(probes, clean, clean, folds) == 0).all()


def test_a_shift_of_all_samples_is_removed_by_drift_correction(probes: LayerProbes, clean: np.ndarray, folds: Folds):
    shifted = clean + np.linspace(-5, 5, WIDTH).astype(np.float32)
    corrected = read_out(probes, shifted, folds) - by_sample(drift(probes, clean, shifted, folds), folds)
    assert corrected == pytest.approx(read_out(probes, clean, folds), abs=1e-4)


def test_values_by_fold_are_handed_to_samples(folds: Folds):
    values = np.arange(REPEATS * FOLDS * 3).reshape(REPEATS, FOLDS, 3)
    found = by_sample(values, folds)
    for repeat, part, sample in np.ndindex(REPEATS, 3, N):
        assert found[repeat, part, sample] == values[repeat, folds.fold[repeat, sample], part]


def test_large_activations_lose_no_precision(folds: Folds):
    """Residual streams reach 50,000 in a feature that hardly varies beside it."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((N, 30)).astype(np.float32)
    x[:, 0] += 50_000
    labels, clusters = x[:, 1] + x[:, 2] > 0, np.arange(N) // 2
    probes = fit_layer(x, labels, clusters, folds, 0.1)
    moved = x - np.float32(x.mean(0))
    near = fit_layer(moved, labels, clusters, folds, 0.1)
    here, there = read_out(probes, x, folds), read_out(near, moved, folds)
    assert np.abs(here - there).max() < 1e-2 * np.abs(there).max()


def test_what_does_not_fit_together_is_refused(probes: LayerProbes, clean: np.ndarray, folds: Folds):
    with pytest.raises(ProbeError, match="width 7"):
        read_out(probes, clean[:, :5], folds)
    with pytest.raises(ProbeError, match="width 7"):
        read_out_new(probes, clean[:, :5])
    with pytest.raises(ProbeError, match="fitted with"):
        read_out(probes, clean[:-1], folds)
    with pytest.raises(ProbeError, match="fitted with"):
        read_out(probes, clean, make_folds(np.arange(N) % 2, np.arange(N), REPEATS, FOLDS + 1))
    with pytest.raises(ProbeError, match="differ in shape"):
        drift(probes, clean, clean[:-1], folds)


@pytest.fixture
def good() -> Readouts:
    shape = (2, REPEATS, 3, 10, 4)
    return Readouts(
        labels=np.arange(10) < 5,
        clusters=np.arange(10),
        probability=np.full(10, 0.5),
        conditions=("clean", "knockout"),
        logits=np.ones(shape, np.float32),
        drift=np.zeros(shape, np.float32),
    )


def test_readouts_say_their_sizes(good: Readouts):
    assert (good.repeats, good.layers) == (REPEATS, 4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clusters": np.arange(9)}, r"clusters has shape \(9,\) instead of \(10,\)"),
        ({"labels": np.arange(10)}, "int64 instead of bool"),
        ({"probability": np.zeros(10)}, "above 0"),
        ({"conditions": ("knockout", "clean")}, "begin with clean"),
        ({"conditions": ("clean", "clean")}, "distinct"),
        ({"conditions": ("clean",)}, r"instead of \(1, repeat, 3, 10, layer\)"),
        ({"logits": np.ones((2, REPEATS, 2, 10, 4))}, "logits has shape"),
        ({"logits": np.ones((2, REPEATS, 3, 10))}, "logits has shape"),
        ({"logits": np.full((2, REPEATS, 3, 10, 4), np.nan)}, "finite"),
        ({"drift": np.zeros((2, REPEATS, 3, 10, 5))}, "differ in shape"),
        ({"drift": np.ones((2, REPEATS, 3, 10, 4))}, "drift from itself"),
    ],
)
def test_readouts_of_the_wrong_shape_are_refused(good: Readouts, fields: dict[str, object], message: str):
    with pytest.raises(ProbeError, match=message):
        replace(good, **fields)
