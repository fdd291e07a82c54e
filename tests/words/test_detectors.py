"""Detectors of words against scikit-learn, fold by fold; what they may not see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from anchorscope.errors import ProbeError
from anchorscope.probes.folds import inner_folds
from anchorscope.words.detectors import FOLDS, IDENTITY, INNER, OF_NUMBERS, RECIPES, _read_out, fit, folds_of, score
from anchorscope.words.record import RIGHT, UNJUDGED
from word_worlds import LAYERS, world

EFFECTS = (0.3, 0.8, 1.2, 0.6)


def by_sklearn(x, data, train, c):
    fit = make_pipeline(StandardScaler(), LogisticRegression(C=c, class_weight="balanced", max_iter=2000, tol=1e-8))
    return fit.fit(x[train], data.wrong[train]).decision_function(x)


@pytest.fixture(scope="module")
def data():
    return world(1, effects=EFFECTS)


@pytest.fixture(scope="module")
def scores(data):
    return score(data)


def test_numbers_are_logistic_regressions_out_of_fold(data, scores):
    fold = folds_of(data, 0)
    for name in ("form", "overlap", "numbers"):
        x = data.matrix(RECIPES[name].groups)
        for number in range(FOLDS):
            own = by_sklearn(x, data, np.flatnonzero((fold != number) & data.judged), OF_NUMBERS)
            tested = fold == number
            assert scores[name].logits[tested] == pytest.approx(own[tested], abs=5e-3)


def test_states_are_read_at_the_layer_and_with_the_c_that_the_training_set_chose(data, scores):
    fold = folds_of(data, 0)
    for number, (layer, c) in enumerate(scores["states"].chosen):
        x = data.states[LAYERS.index(layer)]
        own = by_sklearn(x, data, np.flatnonzero((fold != number) & data.judged), c)
        tested = fold == number
        assert scores["states"].logits[tested] == pytest.approx(own[tested], abs=5e-3)
    assert [layer for layer, _ in scores["states"].chosen] == [5] * FOLDS  # the other layer knows nothing


def test_together_is_better_than_either_where_both_know_something(data, scores):
    judged = data.judged
    area = {name: roc_auc_score(data.wrong[judged], one.logits[judged]) for name, one in scores.items()}
    assert area["rivals"] > max(area["numbers"], area["identity"])
    assert area["together"] > max(area["rivals"], area["states"])
    assert area["live"] > max(area["live_numbers"], area["states"])


def test_a_cluster_is_never_in_two_folds(data):
    fold = folds_of(data, 0)
    assert all(len(set(fold[data.cluster == cluster])) == 1 for cluster in np.unique(data.cluster))
    assert set(fold) == set(range(FOLDS))


def test_words_of_a_fold_do_not_move_their_own_scores(data, scores):
    """Deal the labels of one fold anew within each cluster: its own scores must stay as they are."""
    fold, turned, random = folds_of(data, 0), data.labels.copy(), np.random.default_rng(4)
    for cluster in np.unique(data.cluster[fold == 2]):
        own = np.flatnonzero((data.cluster == cluster) & data.judged)
        turned[own] = random.permutation(turned[own])
    other = score(data.with_labels(turned))
    assert np.array_equal(folds_of(data.with_labels(turned), 0), fold)
    for name, one in other.items():
        assert one.logits[fold == 2] == pytest.approx(scores[name].logits[fold == 2], abs=1e-4), name
        assert not np.allclose(one.logits[fold != 2], scores[name].logits[fold != 2])


def test_every_word_is_scored_and_only_judged_ones_are_fitted_on(data, scores):
    assert all(np.isfinite(one.logits).all() for one in scores.values())
    unjudged = data.labels == UNJUDGED
    moved = {name: x.copy() for name, x in data.numbers.items()}
    for x in moved.values():
        x[unjudged] += 100
    again = score(replace(data, numbers=moved), ["numbers"])["numbers"]
    assert again.logits[~unjudged] == pytest.approx(scores["numbers"].logits[~unjudged], abs=1e-3)


def test_nothing_is_found_where_nothing_is(data):
    """Labels without any relation to the numbers: out-of-fold scores rank no better than chance."""
    areas = []
    for seed in range(6):
        blank = world(100 + seed)
        judged = blank.judged
        areas += [roc_auc_score(blank.wrong[judged], one.logits[judged]) for one in score(blank).values()]
    assert abs(np.mean(areas) - 0.5) < 0.03


def test_one_kind_of_words_is_refused(data):
    with pytest.raises(ProbeError, match="0 are wrong"):
        score(data.with_labels(np.full(len(data), RIGHT, np.int8)))


def test_too_few_marked_texts_are_told_in_terms_of_texts(data):
    two = data.with_labels(np.where(data.cluster < 2, data.labels, UNJUDGED).astype(np.int8))
    with pytest.raises(ProbeError, match=r"too few marked texts .* clusters have wrong words") as caught:
        folds_of(two, 0)
    assert "--detector" in caught.value.hint


def test_names_say_what_a_server_can_know():
    """A live detector needs no further pass."""
    for name, recipe in RECIPES.items():
        if name.startswith("live"):
            assert "lost" not in recipe.groups
    assert RECIPES["together"] == RECIPES["rivals"]._replace(states=True)  # so their difference is what states add


@pytest.mark.parametrize("name", list(RECIPES))
def test_a_fitted_detector_is_one_sum(data, scores, name):
    """Fitted on the training words of a fold, it gives the logits that the words of this fold have out of fold."""
    fold = folds_of(data, 0)
    found = fit(data, name, fold != 1)
    logits = found.logits(data.matrix(found.groups), dict((*data.vectors("states"), *data.vectors("identity"))))
    if not found.vectors:  # inner folds are dealt by the number of the training set
        assert logits[fold == 1] == pytest.approx(scores[name].logits[fold == 1], abs=1e-3)
    assert np.corrcoef(logits[fold == 1], scores[name].logits[fold == 1])[0, 1] > 0.98


def test_together_weighs_numbers_and_the_inner_logit_of_states(data):
    """In the training set the logit comes from fits that did not see the word; on new words, from the whole fit."""
    fold = folds_of(data, 0)
    training = ((fold != 1) & data.judged)[None]
    read_outs = [_read_out(data, kind, training, 0) for kind in ("identity", "states")]
    rows = np.flatnonzero(training[0])
    numbers = data.matrix(RECIPES["numbers"].groups)
    x = np.concatenate([numbers, *(one.inner[0][:, None] for one in read_outs)], axis=1)
    fit_of_both = make_pipeline(StandardScaler(), LogisticRegression(C=OF_NUMBERS, class_weight="balanced", tol=1e-8))
    fit_of_both.fit(x[rows], data.wrong[rows])
    new = np.concatenate([numbers, *(one.whole[0].logits[:, None] for one in read_outs)], axis=1)
    found = fit(data, "together", fold != 1)
    assert set(found.vectors) == {IDENTITY, 5}
    logits = found.logits(numbers, dict((*data.vectors("states"), *data.vectors("identity"))))
    assert logits[fold == 1] == pytest.approx(fit_of_both.decision_function(new)[fold == 1], abs=1e-2)


def test_the_inner_logit_of_a_word_comes_from_other_clusters(data):
    """A word whose state is moved far changes its own inner logit, but not by a fit that saw it."""
    training = np.ones((1, len(data)), bool) & data.judged
    read_out = _read_out(data, "states", training, 0)
    (layer, c) = read_out.chosen[0]
    x, own = data.states[LAYERS.index(layer)], int(np.flatnonzero(training[0])[5])
    inner = inner_folds(~data.wrong[training[0]], data.cluster[training[0]], INNER, [0, 11, 0])
    fold = np.full(len(data), -1)
    fold[training[0]] = inner
    others = np.flatnonzero(training[0] & (fold != fold[own]))
    # C is raised by as much as the words are fewer; standardised as the whole training set is
    scaler = StandardScaler().fit(x[training[0]])
    model = LogisticRegression(C=c * training.sum() / len(others), class_weight="balanced", tol=1e-8)
    model.fit(scaler.transform(x[others]), data.wrong[others])
    expected = model.decision_function(scaler.transform(x[own : own + 1]))[0]
    assert read_out.inner[0][own] == pytest.approx(expected, abs=5e-3)
    assert not np.isclose(read_out.whole[0].logits[own], expected, atol=1e-4)
