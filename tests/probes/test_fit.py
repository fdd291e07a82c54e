from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from anchorscope.errors import ProbeError
from anchorscope.probes.fit import Strength, choose_strength, fit_layer, standardise
from anchorscope.probes.folds import Folds, deal, inner_folds, make_folds
from anchorscope.probes.logistic import SPREADS, balanced, balanced_log_loss, fit_temperature, fit_temperatures
from anchorscope.probes.probe import LayerProbes, load_probes, save_probes
from anchorscope.probes.solver import Fits, Shared, solve_kernel

N, WIDTH, C = 150, 40, 0.01


def simulate(samples: int = N, width: int = WIDTH, signal: float = 2.0, seed: int = 0):
    """Correlated activations of uneven scale, labels drawn from a logit of the given spread, clusters of 1 to 4."""
    rng = np.random.default_rng(seed)
    basis = rng.standard_normal((width, width)) * np.arange(1, width + 1) ** -0.5
    hidden = rng.standard_normal((samples, width))
    logit = signal * (hidden[:, :4] @ np.array([0.7, -0.5, 0.4, 0.3]))
    labels = rng.random(samples) < expit(logit - 0.6)
    x = (hidden @ basis.T) * np.exp(rng.normal(0, 2, width)) + rng.normal(0, 30, width)
    clusters = 7 * np.sort(rng.integers(0, max(2, samples // 2), samples))  # with gaps, as ids have
    return x.astype(np.float32), labels, rng.permutation(clusters)


@pytest.fixture(scope="module")
def data():
    x, labels, clusters = simulate()
    return x, labels, clusters, make_folds(labels, clusters, repeats=2, folds=3)


@pytest.fixture(scope="module")
def probes(data) -> LayerProbes:
    return fit_layer(*data, C)


# ---- folds ----


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 6), st.floats(0.2, 0.8), st.integers(1, 6))
def test_no_cluster_is_split_over_folds_or_halves(seed: int, count: int, share: float, size: int):
    rng = np.random.default_rng(seed)
    labels, clusters = rng.random(120 * size) < share, rng.integers(0, 120, 120 * size)
    folds = make_folds(labels, clusters, repeats=2, folds=count, seed=seed)
    for repeat, cluster in product(range(2), np.unique(clusters)):
        rows = clusters == cluster
        assert len(set(folds.fold[repeat, rows])) == 1
        assert len(set(folds.half[repeat, rows])) == 1
    assert set(np.unique(folds.fold)) == set(range(count))
    assert set(np.unique(folds.half)) == {1, 2}
    for repeat, fold in product(range(2), range(count)):
        whole, first, second = (folds.training(repeat, fold, part) for part in range(3))
        assert not (first & second).any()
        assert (whole == (first | second)).all()
        assert (whole == (folds.fold[repeat] != fold)).all()


def test_classes_are_dealt_evenly():
    rng = np.random.default_rng(3)
    labels = rng.random(503) < 0.3
    folds = make_folds(labels, np.arange(503))
    for repeat, label in product(range(5), (False, True)):
        sizes = np.bincount(folds.fold[repeat, labels == label])
        assert sizes.max() - sizes.min() <= 1
        for fold in range(5):
            halves = [(folds.training(repeat, fold, part) & (labels == label)).sum() for part in (1, 2)]
            assert abs(halves[0] - halves[1]) <= 2


def dealt_to_the_first(counts: np.ndarray, bins: int, rng: np.random.Generator) -> np.ndarray:
    """(cluster): a bin, by the same costs, slowly; of bins that cost the same, the first."""
    order = sorted(rng.permutation(len(counts)), key=lambda cluster: -counts[cluster].sum())
    held, dealt = np.zeros((bins, 2)), np.zeros(len(counts), int)
    for cluster in order:
        dealt[cluster] = np.argmin((held * counts[cluster] / counts.sum(axis=0) ** 2).sum(axis=1))
        held[dealt[cluster]] += counts[cluster]
    return dealt


def test_every_cluster_is_as_likely_held_out_and_classes_are_as_even():
    """Four bins of ten are held out. Where ties went to the first bin, the four largest clusters always were."""
    rng, seeds = np.random.default_rng(4), 500
    sizes = np.repeat(np.arange(1, 13), 4)
    sizes[-1] = 20
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    labels = rng.random(len(clusters)) < 0.35
    counts = np.stack([np.bincount(clusters[labels == label], minlength=len(sizes)) for label in (False, True)], axis=1)
    dealt = np.array([deal(labels, clusters, 10, [seed, 17]) for seed in range(seeds)])
    before = np.array([dealt_to_the_first(counts, 10, np.random.default_rng(seed)) for seed in range(seeds)])
    assert (before[:, -1] == 0).all()  # the largest
    held = (dealt < 4).mean(axis=0)
    spread = np.sqrt(0.4 * 0.6 / seeds)
    assert abs(held[-1] - 0.4) < 3 * spread
    assert np.abs(held - 0.4).max() < 4.5 * spread
    assert abs(held.std() / spread - 1) < 0.35  # as much as chance makes it

    def unevenness(bins: np.ndarray) -> float:
        shares = np.array([[counts[row == number].sum(axis=0) for number in range(10)] for row in bins])
        return float((shares / counts.sum(axis=0)).std(axis=1).mean())

    assert unevenness(dealt) == pytest.approx(unevenness(before), rel=0.1)


def test_with_few_clusters_the_last_bins_are_empty():
    for seed in range(20):
        assert sorted(deal(np.arange(8) % 2 == 0, np.arange(8) // 2, 10, [seed])) == [0, 1, 2, 3]


def test_folds_are_drawn_anew_in_each_repeat_and_are_the_same_every_time(data):
    _, labels, clusters, folds = data
    again = make_folds(labels, clusters, repeats=2, folds=3)
    other = make_folds(labels, clusters, repeats=2, folds=3, seed=1)
    assert (again.fold == folds.fold).all()
    assert (again.half == folds.half).all()
    assert (other.fold != folds.fold).any()
    assert (folds.fold[0] != folds.fold[1]).any()
    together = folds.half == folds.half[:, :1]  # who shares the first sample's half, whatever it is called
    assert (together[0] != together[1]).any()
    longer = make_folds(labels, clusters, repeats=3, folds=3)
    assert (longer.fold[:2] == folds.fold).all()  # more repeats do not change the first ones


def test_too_few_questions_are_refused_with_a_way_out():
    labels = np.arange(100) < 4
    with pytest.raises(ProbeError, match=r"4 have a right answer and 96 a wrong one.*\n.*fewer folds"):
        make_folds(labels, np.arange(100))
    with pytest.raises(ProbeError, match="halve"):  # many samples, but of one question
        make_folds(np.arange(100) < 50, np.where(np.arange(100) < 50, 0, np.arange(100)))
    with pytest.raises(ProbeError, match="both must occur"):
        make_folds(np.zeros(10), np.arange(10))
    with pytest.raises(ProbeError, match="0 or 1"):
        make_folds(np.arange(10), np.arange(10))
    with pytest.raises(ProbeError, match="one per sample"):
        make_folds(np.arange(10) % 2, np.arange(9))


# ---- the fit ----


@pytest.mark.parametrize("c", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize(("samples", "width"), [(150, 40), (60, 200)])
def test_a_probe_is_scikit_learns_pipeline_over_the_temperature(c: float, samples: int, width: int):
    x, labels, clusters = simulate(samples, width)
    x[:, 3] = 0.1  # a constant feature
    folds = make_folds(labels, clusters, repeats=1, folds=3)
    probes = fit_layer(x, labels, clusters, folds, c)
    wide = x.astype(np.float64)
    for fold, part in product(range(3), range(3)):
        train = folds.training(0, fold, part)
        oracle = make_pipeline(
            StandardScaler(), LogisticRegression(C=c, class_weight="balanced", tol=1e-10, max_iter=10_000)
        )
        expected = oracle.fit(wide[train], labels[train]).decision_function(wide)
        found = wide @ probes.weight[0, fold, part] + probes.bias[0, fold, part]
        found *= probes.temperature[0, fold, part]
        assert np.abs(found - expected).max() < 1e-3 * np.abs(expected).max()
    assert (probes.weight[..., 3] == 0).all()
    assert np.isfinite(probes.weight).all()


def test_problems_solved_together_are_those_solved_alone():
    x, labels, _ = simulate()
    z = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    fitted = np.random.default_rng(0).random((5, N)) < np.array([0.3, 0.5, 0.7, 0.9, 1.0])[:, None]
    together = solve_kernel(z @ z.T, labels, fitted, 0.1)
    for problem in range(5):
        rows = fitted[problem]
        alone = solve_kernel(z[rows] @ z[rows].T, labels[rows], np.ones((1, rows.sum()), bool), 0.1 / rows.mean())
        logits = together[2][problem]
        assert np.abs(logits[rows] - alone[2][0]).max() < 1e-3 * np.abs(logits).max()
        expected = LogisticRegression(C=0.1 / rows.mean(), class_weight="balanced", tol=1e-10, max_iter=10_000)
        expected = expected.fit(z[rows], labels[rows]).decision_function(z)
        assert np.abs(logits - expected).max() < 1e-3 * np.abs(expected).max()  # samples not fitted on too


def test_hard_problems_converge():
    # separable, hardly regularised, one direction that dwarfs the rest, few of one class
    rng = np.random.default_rng(5)
    labels = np.arange(200) < 8
    z = rng.standard_normal((200, 300)) + 20 * rng.standard_normal((200, 1)) + 3 * labels[:, None]
    z = ((z - z.mean(0)) / z.std(0)).astype(np.float32)
    expected = LogisticRegression(C=100.0, class_weight="balanced", tol=1e-10, max_iter=100_000).fit(z, labels)
    expected = expected.decision_function(z)
    found = solve_kernel(z @ z.T, labels, np.ones((1, 200), bool), 100.0)[2][0]
    assert np.abs(found - expected).max() < 5e-3 * np.abs(expected).max()


def test_a_fit_that_ends_in_the_last_step_leaves_the_others_judged_by_their_own_gradients(monkeypatch):
    # three fits, of which the first has nothing to learn: it is done before the only step, the others after it
    x = np.random.default_rng(3).normal(size=(60, 4)).astype(np.float32)
    right = x[:, 0] + x[:, 1] > 0
    fitted = np.ones((3, 60), bool)
    whole = Shared(x).solve(right, Fits(fitted, np.arange(3), fitted, np.array([1e-12, 1.0, 2.0])))
    monkeypatch.setattr("anchorscope.probes.solver.NEWTON_STEPS", 1)
    with pytest.raises(ProbeError, match="did not converge"):
        Shared(x).solve(right, Fits(fitted, np.arange(3), fitted, np.array([1e-12, 1.0, 2.0])))
    assert np.isfinite(whole.weight).all()


def test_everything_is_deterministic(data, probes: LayerProbes):
    again = fit_layer(*data, C)
    assert (again.weight == probes.weight).all()
    assert (again.bias == probes.bias).all()
    assert (again.temperature == probes.temperature).all()


@pytest.mark.parametrize("change", ["label", "activation"])
def test_a_sample_never_reaches_its_own_probes(data, probes: LayerProbes, change: str):
    x, labels, clusters, folds = data
    for sample in (0, 77, 149):
        x_new, labels_new = x.copy(), labels.copy()
        own = clusters == clusters[sample]  # nor does another sample of its question
        if change == "label":
            labels_new[own] = ~labels[own]
        else:
            x_new[own] = 1e4
        changed = fit_layer(x_new, labels_new, clusters, folds, C)
        for repeat, fold, part in np.ndindex(2, 3, 3):
            before, after = (
                (x @ each.weight[repeat, fold, part] + each.bias[repeat, fold, part])
                * each.temperature[repeat, fold, part]
                for each in (probes, changed)
            )
            moved = np.abs(after - before).max() / np.abs(before).max()
            cooled = changed.temperature[repeat, fold, part] / probes.temperature[repeat, fold, part]
            trains = part in (0, folds.half[repeat, sample]) and folds.fold[repeat, sample] != fold
            if trains:  # where it does train, it counts
                assert moved > 1e-2
            else:  # all fits are solved together, so it may change the way to a solution, and nothing else
                assert moved < 1e-4
                assert cooled == pytest.approx(1, abs=1e-4)


def test_conditions_to_fit_on_are_checked(data):
    x, labels, clusters, folds = data
    broken = x.copy()
    broken[3, 4] = np.inf
    with pytest.raises(ProbeError, match=r"finite.*\n.*float16"):
        fit_layer(broken, labels, clusters, folds, C)
    with pytest.raises(ProbeError, match="150 samples"):
        fit_layer(x[:-1], labels[:-1], clusters[:-1], folds, C)


# ---- calibration ----


def test_the_loss_is_scikit_learns_with_balanced_weights():
    rng = np.random.default_rng(0)
    logits, right = rng.standard_normal(50) * 3, rng.random(50) < 0.2
    expected = log_loss(right, expit(logits), sample_weight=balanced(right))
    assert balanced_log_loss(logits, right) == pytest.approx(expected)
    slow = [
        np.mean([-np.log(expit(z if y else -z)) for z, y in zip(logits, right, strict=True) if y == k]) for k in (0, 1)
    ]
    assert balanced_log_loss(logits, right) == pytest.approx(np.mean(slow))


@pytest.mark.parametrize("true", [0.01, 0.4, 1.0, 5.0])
def test_the_temperature_is_the_best_one(true: float):
    rng = np.random.default_rng(1)
    logits = rng.standard_normal(2000) * 2
    right = rng.random(2000) < expit(logits)
    found = fit_temperature(logits * true, right)
    around = [balanced_log_loss(logits * true / t, right) for t in found * np.array([0.98, 1.0, 1.02])]
    assert np.argmin(around) == 1
    assert found == pytest.approx(true, rel=0.15)


def test_temperatures_of_several_rows_are_those_scipy_finds():
    rng = np.random.default_rng(4)
    right = rng.random(300) < 0.3
    logits = rng.standard_normal((4, 300)) * 3 + np.array([[0.0], [1.0], [3.0], [6.0]]) * (right - 0.5)
    for row, found in zip(logits, fit_temperatures(logits, right), strict=True):
        size = np.sqrt(np.mean(row**2))
        bounds = np.log(size / SPREADS[1]), np.log(size / SPREADS[0])
        slow = minimize_scalar(
            lambda log, row=row: balanced_log_loss(row / np.exp(log), right), bounds=bounds, method="bounded"
        )
        assert balanced_log_loss(row / found, right) <= slow.fun + 1e-9
        assert np.log(found) == pytest.approx(slow.x, abs=1e-2)


def test_logits_that_rank_by_chance_or_worse_go_to_one_half():
    rng = np.random.default_rng(2)
    logits = rng.standard_normal(400) * 8
    worse = fit_temperature(-logits, logits > 0)
    assert np.sqrt(np.mean((logits / worse) ** 2)) == pytest.approx(SPREADS[0], rel=1e-2)
    assert fit_temperature(np.zeros(10), np.arange(10) < 5) == 1.0


def out_of_fold(x, folds: Folds, probes: LayerProbes) -> np.ndarray:
    """(repeat, part, sample), by an obvious loop."""
    out = np.empty((folds.repeats, 3, len(x)))
    for repeat, part, sample in np.ndindex(*out.shape):
        fold = folds.fold[repeat, sample]
        out[repeat, part, sample] = x[sample] @ probes.weight[repeat, fold, part] + probes.bias[repeat, fold, part]
    return out


@pytest.mark.parametrize("c", [1e-4, 1e-2, 1.0])
def test_a_layer_that_knows_nothing_says_one_half(c: float):
    away = []
    for seed in range(4):  # one draw alone may lie as far as 0.045 from one half
        x, labels, clusters = simulate(400, 60, signal=0.0, seed=seed)
        folds = make_folds(labels, clusters, repeats=2, seed=seed)
        p = expit(out_of_fold(x, folds, fit_layer(x, labels, clusters, folds, c)))
        away.append(np.abs(p - 0.5).mean())
    assert np.mean(away) < 0.03
    assert np.abs(expit(out_of_fold(0 * x, folds, fit_layer(0 * x, labels, clusters, folds, c))) - 0.5).max() < 0.02


@pytest.mark.parametrize("c", [1e-4, 1e-2, 1.0])
def test_a_layer_that_knows_is_calibrated_whatever_the_strength(c: float):
    x, labels, clusters = simulate(1200, 60, signal=2.5)
    folds = make_folds(labels, clusters, repeats=1)
    logits = out_of_fold(x, folds, fit_layer(x, labels, clusters, folds, c))[0]
    for part in range(3):
        check = LogisticRegression(C=1e6, class_weight="balanced").fit(logits[part][:, None], labels)
        # the slope of calibrated logits is 1; of half probes at C = 1 it is 1.27, mean over ten draws of folds
        assert 0.8 < check.coef_[0, 0] < (1.25 if c < 1 else 1.4)
        assert abs(check.intercept_[0]) < 0.15
        p, weights = expit(logits[part]), balanced(labels)
        assert np.abs(p - 0.5).mean() > 0.2
        for low, high in ((0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1)):
            rows = (p >= low) & (p < high)
            assert np.average(labels[rows], weights=weights[rows]) == pytest.approx(p[rows].mean(), abs=0.12)


# ---- strength ----


def test_the_strength_is_the_one_of_least_inner_log_loss(data):
    x, labels, clusters, folds = data
    noise = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    read = {3: x, 5: noise}.__getitem__
    grid = (1.0, 1e-4, 1e-2)
    found = choose_strength([3, 5], read, labels, clusters, folds, grid)
    assert found.grid == (1e-4, 1e-2, 1.0)
    assert found.layers == (3, 5)
    assert float(found) == found.value == found.grid[found.log_loss.mean(0).argmin()]
    assert (found.calibrated <= found.log_loss + 1e-3).all()  # its bounds cost a little
    assert found.calibrated[1] == pytest.approx(np.log(2), abs=0.02)  # noise
    assert found.log_loss[0, 1] < np.log(2) - 0.05
    alone = choose_strength([5], read, labels, clusters, folds, grid)
    assert alone.log_loss[0] == pytest.approx(found.log_loss[1])
    threads = choose_strength([3, 5], read, labels, clusters, folds, grid, jobs=2)
    assert (threads.log_loss == found.log_loss).all()
    assert json.loads(json.dumps(found.record()))["C"] == found.value


def test_the_curve_is_that_of_scikit_learn_oninner_folds(data):
    x, labels, clusters, folds = data
    found = choose_strength([0], lambda _: x, labels, clusters, folds, (1e-3, 0.1))
    for place, c in enumerate(found.grid):
        losses = []
        for fold in range(folds.count):
            train = folds.training(0, fold, 0)
            z, y = StandardScaler().fit_transform(x[train].astype(np.float64)), labels[train]
            inner = inner_folds(y, clusters[train], 3, [0, 0, fold, 0])
            logits = np.empty(len(y))
            for each in range(3):
                held = inner == each
                assert not set(clusters[train][held]) & set(clusters[train][~held])
                fuller = c * len(y) / (~held).sum()  # as strong for each sample as in the fit on all
                model = LogisticRegression(C=fuller, class_weight="balanced", tol=1e-8, max_iter=10_000)
                logits[held] = model.fit(z[~held], y[~held]).decision_function(z[held])
            losses.append(log_loss(y, expit(logits), sample_weight=balanced(y)))
        assert found.log_loss[0, place] == pytest.approx(np.mean(losses), abs=1e-4)


def test_an_optimum_at_the_edge_of_the_grid_is_said(data):
    x, labels, clusters, folds = data

    def edge(*grid: float) -> str:
        return choose_strength([0], lambda _: x, labels, clusters, folds, grid).edge

    assert edge(1e-4, 1e-2, 10.0) == ""
    assert edge(1.0, 10.0) == "lowest"
    assert edge(1e-6, 1e-5) == "highest"
    with pytest.raises(ProbeError, match="no C above 0"):
        edge()


def test_a_strength_can_be_handed_to_the_fit(data, probes: LayerProbes):
    strength = Strength(C, (C,), (0,), np.zeros((1, 1)), np.zeros((1, 1)))
    assert (fit_layer(*data, strength).weight == probes.weight).all()


# ---- saving ----


def test_probes_come_back_as_they_were(tmp_path: Path, probes: LayerProbes):
    stem = tmp_path / "new" / "mlp-answer_last-0.6b"
    other = LayerProbes(probes.weight + 1, probes.bias + 1, probes.temperature + 1)
    save_probes(stem, [probes, other], {"C": C, "note": "Größe"})
    assert sorted(path.name for path in stem.parent.iterdir()) == [f"{stem.name}.json", f"{stem.name}.safetensors"]
    layers, record = load_probes(stem)
    assert record == {"C": C, "note": "Größe"}
    for saved, loaded in zip((probes, other), layers, strict=True):
        for name in ("weight", "bias", "temperature"):
            assert (getattr(saved, name) == getattr(loaded, name)).all()
            assert getattr(saved, name).dtype == getattr(loaded, name).dtype


def test_broken_probes_are_refused(tmp_path: Path, probes: LayerProbes):
    stem = tmp_path / "mlp"
    with pytest.raises(ProbeError, match="fit them again"):
        load_probes(stem)
    save_probes(stem, [probes], {})
    tensors = stem.with_name("mlp.safetensors")
    whole = tensors.read_bytes()
    for broken in (b"", whole[:50], whole[:-100]):
        tensors.write_bytes(broken)
        with pytest.raises(ProbeError, match=r"cannot load the probes at .*mlp"):
            load_probes(stem)
    save_probes(stem, [LayerProbes(probes.weight, probes.bias[:1], probes.temperature)], {})
    with pytest.raises(ProbeError, match="shapes"):
        load_probes(stem)


def test_training_sets_with_fewer_inner_folds_than_others_keep_their_own_temperatures():
    """With few clusters an inner fold can be empty; what other sets get does not shift by it."""
    labels, clusters = np.arange(16) % 2 == 0, np.arange(16) // 4
    x = np.random.default_rng(5).normal(size=(16, 6)).astype(np.float32)
    x[labels] += 1
    folds = make_folds(labels, clusters, repeats=2, folds=3, seed=0, halves=False)
    together = fit_layer(x, labels, clusters, folds, 0.1, parts=1)
    counts = set()
    for repeat, fold in np.ndindex(2, 3):
        train = np.flatnonzero(folds.training(repeat, fold, 0))
        inner = inner_folds(labels[train], clusters[train], 3, [0, repeat, fold, 0])
        counts.add(int(inner.max()) + 1)
        z, logits = standardise(x[train])[0], np.empty(len(train))
        for each in range(int(inner.max()) + 1):
            fitted, left = inner != each, inner == each
            c = 0.1 * len(train) / fitted.sum()
            probe = LogisticRegression(C=c, class_weight="balanced", tol=1e-10, max_iter=10000)
            logits[left] = probe.fit(z[fitted], labels[train][fitted]).decision_function(z[left])
        wanted = fit_temperature(logits, labels[train])
        assert together.temperature[repeat, fold, 0] == pytest.approx(wanted, rel=1e-2)
    assert counts == {2, 3}
