"""A row over all models and datasets: its value, how sure it is, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from anchorscope.evidence.claim import Claim, ClaimMeasure, Measure
from anchorscope.evidence.ledger import ledger, verdicts_of, weighed
from anchorscope.evidence.pooled import LIKE_THESE, THESE, pooled
from anchorscope.evidence.record import POOLED
from anchorscope.pathways.intervals import resample

CLAIM = Claim("c", "s", "t", "k", 0.05, "above", Measure((), lambda lines: None))
SETS = ("a", "b", "c")


def cell(values, names, n=100):
    """The mean of some numbers, one a question, resampled by the questions' names."""
    drawn = resample(np.arange(len(values)), 1, 400, 0, names).samples
    return ClaimMeasure([drawn @ values / drawn.sum(axis=1)], n)


@pytest.fixture(scope="module")
def numbers():
    """(set, model, question): numbers of two models with questions in common."""
    rng = np.random.default_rng(5)
    common = rng.normal(size=(3, 1, 80))
    return 0.3 + np.array([0.0, 0.2, 0.1])[:, None, None] + common + 0.3 * rng.normal(size=(3, 2, 80))


@pytest.fixture(scope="module")
def rows(numbers):
    measured = {
        f"m{m}": {name: cell(numbers[d, m], [f"{name}/{q}" for q in range(80)]) for d, name in enumerate(SETS)}
        for m in range(2)
    }
    return pooled(measured)


def test_the_value_is_the_mean_over_sets_of_the_mean_over_models(rows, numbers):
    for row in rows.values():
        assert row.parts[0][0] == pytest.approx(numbers.mean(), abs=1e-6)
        assert row.n == 600


def test_models_with_the_same_questions_are_not_taken_as_independent(rows, numbers):
    by_question = numbers.mean(axis=1)  # one number a question, the mean over models
    wanted = np.sqrt((by_question.var(axis=1, ddof=1) / 80).sum()) / 3
    spread = rows[THESE].parts[0][1:].std()
    assert spread == pytest.approx(wanted, rel=0.12)
    independent = np.sqrt((numbers.var(axis=2, ddof=1) / 80).sum()) / 6
    assert spread > 1.2 * independent


def test_random_sets_have_the_interval_of_t_by_hand(rows, numbers):
    found = verdicts_of([weighed(CLAIM, POOLED, LIKE_THESE, rows[LIKE_THESE])])[0]
    means = numbers.mean(axis=(1, 2))
    error = means.std(ddof=1) / np.sqrt(3)
    assert found.low == pytest.approx(means.mean() - student.ppf(0.975, 2) * error, abs=1e-6)
    assert found.high == pytest.approx(means.mean() + student.ppf(0.975, 2) * error, abs=1e-6)
    assert found.p == pytest.approx(student.sf((means.mean() - 0.05) / error, 2), abs=1e-6)
    assert found.p_none == pytest.approx(student.sf(means.mean() / error, 2), abs=1e-6)


def test_a_cluster_of_one_name_counts_as_often_in_every_cell():
    names = [f"q{i}" for i in range(50)]
    whole = resample(np.arange(50), 1, 300, 7, names).samples
    some = resample(np.arange(20), 1, 300, 7, names[10:30]).samples
    np.testing.assert_array_equal(some, whole[:, 10:30])
    assert (whole[0] == 1).all()
    assert whole[1:].mean() == pytest.approx(1, abs=0.03)
    assert whole[1:].var() == pytest.approx(1, abs=0.05)
    together = resample(np.repeat(np.arange(25), 2), 1, 300, 7, names).samples
    np.testing.assert_array_equal(together[:, ::2], together[:, 1::2])
    assert not np.array_equal(resample(np.arange(50), 1, 300, 8, names).samples, whole)


def test_small_cells_are_left_out_and_one_cell_is_not_pooled():
    one, small = cell(np.ones(40), [str(i) for i in range(40)]), cell(np.zeros(40), [str(i) for i in range(40)], n=29)
    assert pooled({"m": {"a": one, "b": None}, "n": {"a": small}}) == {}
    both = pooled({"m": {"a": one, "b": one}, "n": {"a": small}})
    assert both[THESE].parts[0][0] == 1
    assert set(pooled({"m": {"a": one}, "n": {"a": one}})) == {THESE}  # one set says nothing about sets like it


def test_a_curve_is_not_pooled_and_a_test_is_by_its_worst_cell():
    part = np.ones(5)
    assert pooled({"m": {"a": ClaimMeasure([part] * 2, 50, at_once=True), "b": ClaimMeasure([part] * 2, 50)}}) == {}
    assert pooled({"m": {"a": ClaimMeasure([part] * 2, 50), "b": ClaimMeasure([part], 50)}}) == {}
    dips = {
        "a": ClaimMeasure([np.array([0.1])], 50, p=(0.001, 0.9)),
        "b": ClaimMeasure([np.array([0.2])], 50, p=(0.4, 0.01)),
    }
    found = pooled({"m": dips})
    assert set(found) == {THESE}
    assert found[THESE].p == (0.4, 0.9)


def test_the_ledger_has_no_row_over_one_cell():
    assert all(row.model != POOLED for row in ledger({"m": {"d": {}}}))
