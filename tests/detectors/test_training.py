"""Probes of a training set against scikit-learn, and that inner read-outs are of samples that were left out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from anchorscope.detectors.training import INNER, Training, areas, fit_small, ridge_logistic
from anchorscope.study.terms import StateName
from made_up import make_samples

NAME = StateName("clean", "mlp", "answer_last")


@pytest.fixture(scope="module")
def training() -> Training:
    samples = make_samples(120)
    return samples.training(np.arange(120))


def ranks(x: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(x))


@pytest.mark.parametrize("c", [1e-3, 0.1, 10.0])
def test_a_small_regression_is_scikit_learns(c: float) -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(90, 5))
    right = z[:, 0] + rng.normal(size=90) > 0.4
    weight, bias = ridge_logistic(z, right, c)
    theirs = LogisticRegression(C=c, class_weight="balanced", tol=1e-10, max_iter=10000).fit(z, right)
    np.testing.assert_allclose(weight, theirs.coef_[0], atol=1e-5)
    assert bias == pytest.approx(theirs.intercept_[0], abs=1e-5)


def test_probes_of_a_layer_are_scikit_learns(training: Training) -> None:
    probed = training.probed(NAME)
    for layer in range(probed.layers):
        x = training.inputs.state(NAME).layer(layer)
        z = StandardScaler().fit_transform(x)
        theirs = LogisticRegression(C=probed.strength, class_weight="balanced", tol=1e-8, max_iter=10000)
        expected = theirs.fit(z, training.right).decision_function(z)
        got = probed.read(training.inputs.state(NAME))[layer]
        slope = np.polyfit(expected, got, 1)[0]  # the temperature
        np.testing.assert_allclose(got, slope * expected, atol=2e-3)


def test_the_joint_probe_is_one_regression_on_all_layers(training: Training) -> None:
    probed, states = training.probed(NAME), training.inputs.state(NAME)
    z = np.concatenate([StandardScaler().fit_transform(states.layer(k)) for k in range(3)], axis=1) / np.sqrt(3)
    theirs = LogisticRegression(C=probed.strength, class_weight="balanced", tol=1e-8, max_iter=10000)
    expected = theirs.fit(z, training.right).decision_function(z)
    got = probed.read(states)[-1]
    np.testing.assert_allclose(got, np.polyfit(expected, got, 1)[0] * expected, atol=2e-3)


def test_inner_readouts_are_of_samples_left_out(training: Training) -> None:
    probed = training.probed(NAME)
    for fold in range(INNER):  # no cluster on both sides
        rows = np.flatnonzero(training.fold == fold)
        read = probed.read(training.inputs.state(NAME).of(rows), fit=1 + fold)
        np.testing.assert_allclose(read, probed.inner[:, rows], atol=1e-4)
        inside = set(training.clusters[training.fold == fold])
        assert not inside & set(training.clusters[training.fold != fold])
    assert (
        areas(probed.inner, training.right).mean()
        < areas(probed.read(training.inputs.state(NAME)), training.right).mean()
    )


def test_a_small_fit_is_calibrated_and_says_nothing_of_noise() -> None:
    rng = np.random.default_rng(0)
    noise, right = rng.normal(size=(200, 4)), rng.random(200) < 0.3
    fold = np.arange(200) % 4
    small = fit_small(noise, right, fold)
    assert np.abs(expit(small.inner) - 0.5).mean() < 0.1
    telling = noise + right[:, None] * 2
    small = fit_small(telling, right, fold)
    p = expit(small.inner)
    weight = np.where(right, 0.5 / right.mean(), 0.5 / (1 - right.mean()))
    assert abs(np.average(p, weights=weight) - 0.5) < 0.05
    np.testing.assert_allclose(telling @ small.weight[0] + small.bias[0], small.inner, atol=2.5)
