"""What is left out of training and of testing, against sums whose spread is known."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from anchorscope.pathways.record import Key
from anchorscope.pathways.widening import WIDEST, Family, moved_areas, spreads, widening, widenings
from anchorscope.probes.fit import fit_layer
from anchorscope.probes.folds import make_folds
from anchorscope.probes.jackknife import jackknife_layer, make_groups
from anchorscope.probes.readouts import Readouts, read_out
from anchorscope.probes.recorded import LeftOut

G = 20


def moved(test: np.ndarray, train: np.ndarray, pair: np.ndarray) -> np.ndarray:
    """A number that is the mean of what each group does as tester, as trainer, and as a pair of both."""
    out = np.empty((G + 1, G + 1))
    for g in range(G + 1):
        for h in range(G + 1):
            trains, tests = np.arange(G) != g - 1, np.arange(G) != h - 1
            out[g, h] = test[tests].mean() + train[trains].mean() + pair[np.ix_(trains, tests)].mean()
    return out


def test_spreads_of_sums_are_theirs():
    rng = np.random.default_rng(0)
    tested, both, crossed = [], [], []
    for _ in range(300):
        test, train, pair = rng.normal(size=G), 2 * rng.normal(size=G), 3 * rng.normal(size=(G, G))
        found = spreads(moved(test, train, 0 * pair))
        tested.append(found[0])
        both.append(found[1])
        assert found[2] == pytest.approx(0, abs=1e-12)
        crossed.append(spreads(moved(test, train, pair))[2])
    assert np.mean(tested) == pytest.approx(1 / G, rel=0.1)  # the variance of a mean of G with spread 1
    assert np.mean(both) == pytest.approx(5 / G, rel=0.1)
    assert np.mean(crossed) == pytest.approx(9 / G**2, rel=0.15)


def test_what_is_undefined_somewhere_widens_nothing():
    values = np.zeros((G + 1, G + 1))
    values[3, 4] = np.nan
    assert spreads(values) == (0, 0, 0)


@pytest.mark.parametrize(
    ("key", "family"),
    [
        (Key("auroc", "clean"), ("auroc", "none", "all")),
        (Key("auroc_refit", "knockout"), ("auroc", "none", "all")),
        (Key("delta_auroc", "knockout"), ("delta_auroc", "none", "all")),
        (Key("delta_auroc_refit", "knockout"), ("delta_auroc_refit of knockout", "none", "all")),
        (Key("delta_p", "knockout", "layer", group="Q"), ("delta_p", "whole", "Q")),
        (
            Key("delta_p", "matched_question-control_question", "anchor_half", "best", group="Q"),
            ("delta_p", "half", "Q"),
        ),
        (Key("delta_p", "knockout-permuted", "layer_half", group="Q"), ("delta_p beyond permuted", "half", "Q")),
        (Key("share", "knockout", "anchor_half", "half", group="A"), ("share", "half", "A")),
    ],
)
def test_numbers_that_are_widened_alike(key: Key, family: tuple[str, str, str]):
    assert Family.of(key) == family


def test_auroc_is_widened_and_its_change_is_not():
    rng = np.random.default_rng(3)
    n = 240
    labels = rng.random(n) < 0.4
    clean = (rng.normal(size=(n, 40)) + np.where(labels, 0.12, -0.12)[:, None]).astype(np.float32)
    other = (clean + rng.normal(size=clean.shape)).astype(np.float32)
    clusters = np.arange(n)
    folds = make_folds(labels, clusters, 2, 4)
    probes = fit_layer(clean, labels, clusters, folds, 0.01)
    logits = np.stack([read_out(probes, each, folds)[..., None] for each in (clean, other)]).astype(np.float32)
    readouts = Readouts(labels, clusters, np.ones(n), ("clean", "knockout"), logits, np.zeros_like(logits), folds.fold)
    groups = make_groups(labels, clusters, 0)
    left = jackknife_layer([clean, other], labels, clusters, folds, 0.01, probes, groups)
    found = widenings(readouts, LeftOut(groups, [0], np.swapaxes(left, 0, 1)[..., None]))
    assert 1.1 < found[Family("auroc", "none", "all")] < WIDEST
    assert all(1 <= value <= WIDEST for value in found.values())
    assert not any(family.statistic.startswith("delta_auroc") or family.group == "A" for family in found)
    # probes that do not depend on who is left out: nothing to add to the bootstrap
    fixed = np.repeat(logits[None], len(set(groups)), axis=0)
    assert set(widenings(readouts, LeftOut(groups, [0], fixed)).values()) == {1.0}


def test_areas_with_groups_left_out_of_testing_are_those_of_the_others():
    rng = np.random.default_rng(4)
    labels, groups = rng.random(60) < 0.5, np.arange(60) % 4
    trained = rng.integers(0, 9, (5, 2, 60)).astype(np.float32)  # with ties
    found = moved_areas(labels, groups, trained)
    assert found.shape == (5, 5)
    for g in range(5):
        for h in range(5):
            rows = groups != h - 1
            wanted = np.mean([roc_auc_score(labels[rows], trained[g, repeat, rows]) for repeat in range(2)])
            assert found[g, h] == pytest.approx(wanted)


def test_a_number_is_widened_by_what_training_adds_to_testing():
    rng = np.random.default_rng(5)
    test, train = rng.normal(size=G), rng.normal(size=G)
    nothing = np.zeros((G, G))
    together = np.sqrt((test + train).var() / test.var())
    assert widening(moved(test, train, nothing)) == pytest.approx(max(1, together))
    assert widening(moved(test, 3 * test, nothing)) == pytest.approx(4)
    assert widening(moved(test, 30 * test, nothing)) == WIDEST
    assert widening(moved(test, -test / 2, nothing)) == 1  # never narrowed
    assert widening(moved(0 * test, train, nothing)) == 1  # what does not vary is not widened
    layers = np.stack([moved(test, 3 * test, nothing), moved(2 * test, nothing[0], nothing)], axis=-1)
    assert widening(layers) == pytest.approx(np.sqrt((16 + 4) / (1 + 4)))


def test_the_difference_of_a_refit_is_that_of_two_fits():
    """By hand: AUROC of both fits with every group left out of training, of testing and of both."""
    rng = np.random.default_rng(6)
    n = 120
    labels, clusters = rng.random(n) < 0.5, np.arange(n) // 2
    clean = (rng.normal(size=(n, 30)) + np.where(labels, 0.2, -0.2)[:, None]).astype(np.float32)
    other = (clean / 2 + rng.normal(size=clean.shape)).astype(np.float32)
    folds, groups = make_folds(labels, clusters, 2, 3), make_groups(labels, clusters, 0, groups=5)
    own, again = (fit_layer(states, labels, clusters, folds, 0.01) for states in (clean, other))
    logits = np.stack([read_out(own, states, folds)[..., None] for states in (clean, other)]).astype(np.float32)
    readouts = Readouts(labels, clusters, np.ones(n), ("clean", "knockout"), logits, np.zeros_like(logits), folds.fold)
    left = jackknife_layer([clean, other], labels, clusters, folds, 0.01, own, groups)
    left_refit = jackknife_layer([other], labels, clusters, folds, 0.01, again, groups)[0, :, :, 0]
    refit = read_out(again, other, folds)[:, 0].astype(np.float32)
    left_out = LeftOut(groups, [0], np.swapaxes(left, 0, 1)[..., None], {"knockout": left_refit[..., None]})
    found = widenings(readouts, left_out, {"knockout": refit[..., None]})

    by_hand = np.empty((6, 6))
    for g in range(6):
        clean_scores = logits[0, :, 0, :, 0] if g == 0 else left[0, g - 1, :, 0]
        refit_scores = refit if g == 0 else left_refit[g - 1]
        for h in range(6):
            rows = groups != h - 1
            areas = [
                np.mean([roc_auc_score(labels[rows], scores[repeat, rows]) for repeat in range(2)])
                for scores in (refit_scores, clean_scores)
            ]
            by_hand[g, h] = areas[0] - areas[1]
    assert found[Family("delta_auroc_refit of knockout", "none", "all")] == pytest.approx(widening(by_hand))
    assert widening(by_hand) > 1
