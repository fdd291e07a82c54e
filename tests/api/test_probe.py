"""A probe of one's own: scikit-learn's manners, and the same numbers as a run's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from anchorscope import AnchorscopeError, Probe
from anchorscope.probes.fit import choose_strength, fit_layer
from anchorscope.probes.folds import make_folds
from anchorscope.probes.readouts import read_out

N, LAYERS, WIDTH = 120, 3, 20


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sample, layer, width), of which a layer says more than the one before; two samples a group."""
    rng = np.random.default_rng(0)
    y = rng.random(N) < 0.4
    x = rng.standard_normal((N, LAYERS, WIDTH)).astype(np.float32)
    for layer in range(LAYERS):
        x[:, layer, 0] += layer * y
    return x, y, np.arange(N) // 2


@pytest.fixture(scope="module")
def probe(data) -> Probe:
    return Probe(folds=4, repeats=2).fit(*data[:2], groups=data[2])


def test_it_is_the_probe_of_a_run(data, probe: Probe):
    """The same folds, strength, fits and read-outs as the stage makes."""
    x, y, groups = data
    folds = make_folds(y, groups, 2, 4, 0)
    strength = choose_strength(range(LAYERS), lambda layer: x[:, layer], y, groups, folds, probe.strengths)
    assert probe.strength_ == strength.value
    for layer in range(LAYERS):
        fitted = fit_layer(x[:, layer], y, groups, folds, strength)
        expected = read_out(fitted, x[:, layer], folds)[:, 0].mean(axis=0)
        np.testing.assert_allclose(probe.logits_[:, layer], expected, rtol=1e-5, atol=1e-6)


def test_read_outs_are_out_of_fold_and_ranked_by_layer(data, probe: Probe):
    x, y, _ = data
    found = probe.auroc(resamples=200)
    for layer in range(LAYERS):
        by_repeat = [roc_auc_score(y, each[:, layer]) for each in probe._by_repeat]
        assert found.value[layer] == pytest.approx(np.mean(by_repeat))
    assert (found.low < found.value).all()
    assert (found.value < found.high).all()
    assert found.low[0] < 0.5 < found.low[2]  # layer 0 knows nothing
    np.testing.assert_allclose(probe.out_of_fold(x), probe.logits_, atol=1e-5)


def test_a_group_does_not_reach_its_own_read_out(data, probe: Probe):
    x, y, groups = data
    mixed = next(g for g in np.unique(groups) if y[groups == g].sum() == 1)  # turned round, folds are dealt as before
    own = groups == mixed
    one, other = (
        Probe(folds=4, repeats=2, strengths=[probe.strength_]).fit(x, labels, groups=groups)
        for labels in (y, np.where(own, ~y, y))
    )
    # fits are solved together, each to its tolerance: its own labels move a read-out by no more than that
    moved = np.abs(other.logits_ - one.logits_) / np.abs(one.logits_).max()
    assert moved[own].max() < 1e-5
    assert moved[~own].max() > 1e-2


def test_labels_that_mean_nothing_give_one_half(data):
    x, y, groups = data
    shuffled = np.random.default_rng(3).permutation(y)
    found = Probe(folds=4, repeats=3).fit(x, shuffled, groups=groups).auroc(200)
    assert (found.low < 0.5).all()
    assert (found.high > 0.5).all()


def test_scikit_learns_manners(data, probe: Probe):
    x, y, groups = data
    p = probe.predict_proba(x)
    assert p.shape == (N, LAYERS, 2)
    np.testing.assert_allclose(p.sum(axis=-1), 1)
    np.testing.assert_allclose(p[..., 1], expit(probe.decision_function(x)))
    assert set(np.unique(probe.predict(x))) <= {0, 1}
    one = Probe(folds=4, repeats=2).fit(x[:, 2], y, groups)
    assert one.predict_proba(x[:, 2]).shape == (N, 2)
    assert one.logits_.shape == (N,)
    assert one.score(x[:, 2], y) > 0.7  # accuracy, from scikit-learn's own mixin
    assert one.auroc(100).value.shape == ()
    copy = clone(one.set_params(seed=5))
    assert copy.get_params() == one.get_params()
    assert not hasattr(copy, "probes_")
    assert "folds=4" in repr(copy)


def test_probes_are_kept_and_applied_again(data, probe: Probe, tmp_path: Path):
    x = data[0]
    probe.save(tmp_path / "qwen3-0.6b")
    loaded = Probe.load(tmp_path / "qwen3-0.6b")
    np.testing.assert_array_equal(loaded.predict_proba(x), probe.predict_proba(x))
    assert loaded.get_params() == probe.get_params()
    with pytest.raises(AnchorscopeError, match="does not say on which samples"):
        loaded.out_of_fold(x)


def test_what_it_cannot_do_is_said(data, probe: Probe):
    x, y, _ = data
    with pytest.raises(AnchorscopeError, match="not fitted yet"):
        Probe().predict_proba(x)
    with pytest.raises(AnchorscopeError, match=r"fitted on \(3, 20\)"):
        probe.predict_proba(x[:, :2])
    with pytest.raises(AnchorscopeError, match="x has shape"):
        Probe().fit(x[0, 0], y)
    with pytest.raises(AnchorscopeError, match="labels must be 0 or 1, and both"):
        Probe().fit(x, np.ones(N))
    with pytest.raises(AnchorscopeError, match="not all numbers are finite"):
        Probe().fit(np.where(x > 2, np.nan, x), y)
    with pytest.raises(AnchorscopeError, match="folds: should be greater than or equal to 2"):
        Probe(folds=1).fit(x, y)
    with pytest.raises(AnchorscopeError, match="too few questions to make the training sets"):
        Probe().fit(x[:8], np.arange(8) < 2)
