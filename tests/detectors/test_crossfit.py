"""Nested scores: what is tested takes no part, shuffled labels give nothing, and a leak is noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.detectors.catalogue import BASELINES, catalogue
from anchorscope.detectors.compare import MEASURES, WITHIN, compared, kinds_of_error, lookup, measure
from anchorscope.detectors.crossfit import Labelled, area_of, cross_scored, folds_for, shuffled
from anchorscope.detectors.linear import Linear, Recipe
from anchorscope.detectors.record import DETECTORS
from anchorscope.detectors.training import Training, area, areas
from anchorscope.study.terms import StateName
from made_up import make_samples

FITTERS = {name: entry.fitter for name, entry in catalogue().items()}


@pytest.fixture(scope="module")
def samples() -> Labelled:
    return make_samples()


@pytest.fixture(scope="module")
def scores(samples: Labelled) -> dict[str, np.ndarray]:
    return cross_scored(samples, FITTERS, folds_for(samples, 1, 3))


def test_every_detector_scores_every_sample_and_knows_something(
    samples: Labelled, scores: dict[str, np.ndarray]
) -> None:
    assert list(scores) == list(catalogue()) == list(DETECTORS)
    assert all(np.isfinite(each).all() for each in scores.values())
    known = area_of(samples, scores, resamples=100)
    assert known["stack"][0] > 0.75
    assert known["single_layer"][0] > 0.65
    assert known["combined"][0] > known["confidence"][0] > 0.55


@pytest.mark.parametrize("name", list(FITTERS))
def test_labels_of_tested_samples_change_nothing(name: str, samples: Labelled) -> None:
    folds = folds_for(samples, 1, 3)
    test = np.flatnonzero(folds.fold[0] == 0)
    train = np.flatnonzero(folds.fold[0] != 0)
    right = samples.right.copy()
    right[test] = ~right[test]
    lying = replace(samples, right=right)
    each = [FITTERS[name].fit(some.training(train)).logits(some.inputs.of(test)) for some in (samples, lying)]
    np.testing.assert_array_equal(*each)


class Cheat:
    """Chooses layer and sign of a probe by the labels of all samples, those that are tested too."""

    needs = (StateName("clean", "mlp", "answer_last"),)

    def __init__(self, samples: Labelled) -> None:
        self.samples = samples

    def fit(self, training: Training) -> Linear:
        probed, every = training.probed(self.needs[0]), self.samples
        tested = ~np.isin(every.inputs.ids, training.inputs.ids)
        read = probed.read(every.inputs.state(self.needs[0]))[:-1, tested]
        known = areas(read, every.right[tested])
        layer = int(np.abs(known - 0.5).argmax())
        factor = np.zeros(len(probed.inner))
        factor[layer] = np.sign(known[layer] - 0.5)
        weight, bias = probed.summed(factor, 0)
        return Linear({self.needs[0]: weight}, {}, bias)


def test_shuffled_labels_give_nothing_and_a_leak_is_noticed() -> None:
    """Mean over shuffles: one by itself has a wide spread that its resamples do not know."""
    honest = {name: FITTERS[name] for name in ("single_layer", "stack", "combined")}
    found: dict[str, list[float]] = {}
    for seed in range(8):
        null = shuffled(make_samples(120, layers=8, seed=seed), seed)
        made = cross_scored(null, {**honest, "cheat": Cheat(null)}, folds_for(null, 1, 4))
        for name, each in made.items():
            found.setdefault(name, []).append(area(each[0], null.right))
    for name in honest:
        spread = np.std(found[name], ddof=1) / np.sqrt(8)
        assert abs(np.mean(found[name]) - 0.5) < 3 * spread + 0.01, name
    low = np.mean(found["cheat"]) - 2 * np.std(found["cheat"], ddof=1) / np.sqrt(8)
    assert low > 0.5
    assert any(area.low > 0.5 for area in area_of(null, made).values())  # in one shuffle too


def test_the_table(samples: Labelled, scores: dict[str, np.ndarray]) -> None:
    cells = [measure("m", name, samples, scores, catalogue(), resamples=100, seed=i) for i, name in enumerate("ab")]
    rows = lookup(compared(cells))
    stack = rows["m", "a", "stack", "auroc"].value
    simple = max(rows["m", "a", name, "auroc"].value for name in BASELINES)
    assert rows["m", "a", "stack", "beyond_baselines"].value == pytest.approx(stack - simple)
    measures = {row.measure for row in rows.values()}
    assert not measures & set(WITHIN)  # these samples have one answer to each question
    assert measures | {"auroc_within_relation", *WITHIN} == set(MEASURES)
    asked = [name for name, entry in catalogue().items() if entry.side == "question"]
    best = max(rows["m", "a", name, "auroc"].value for name in asked)
    assert rows["m", "a", "stack", "beyond_question"].value == pytest.approx(stack - best)
    assert rows["all", "mean over cells", "stack", "auroc"].value == pytest.approx(stack)
    row = rows["m", "a", "single_layer", "auroc"]
    assert row.low < row.value < row.high
    assert 0 <= rows["m", "a", "stack", "beyond_baselines"].p <= 1
    coverage = 0.8
    for rate in (0.1, 0.3, 0.5):
        errors = rows["m", "a", "stack", f"errors_at_80_base_{rate}"]
        weight = np.where(samples.right, (1 - rate) / samples.right.sum(), rate / (~samples.right).sum())
        order = np.argsort(-scores["stack"].mean(axis=0))
        passed = np.cumsum(weight[order]) <= coverage
        slow = weight[order][passed & ~samples.right[order]].sum() / coverage
        assert errors.value == pytest.approx(slow, abs=weight.max() / coverage)  # but for the last answer
        assert errors.low <= errors.value <= errors.high
    assert rows["m", "a", "stack", "errors_at_80_base_0.3"].value < 0.3


def test_kinds_of_error(samples: Labelled) -> None:
    kinds = kinds_of_error(samples.inputs.answers, samples.right, ["entity"] * 159 + ["yes_no"])
    assert set(kinds) <= {"", "stock", "own", "choice"}
    assert all((kind == "") == good for kind, good in zip(kinds, samples.right, strict=True))


def test_a_stack_is_the_weighted_sum_of_its_readouts(samples: Labelled) -> None:
    training = samples.training(np.arange(100))
    made = Recipe((StateName("clean", "mlp", "answer_last"),), ("logprob_sum",)).fit(training)
    again = Linear.load(made.tensors(), made.settings())
    rest = samples.inputs.of(np.arange(100, 160))
    np.testing.assert_array_equal(made.logits(rest), again.logits(rest))
    assert len(made.variants) == 4
    assert np.corrcoef(made.variants[0].logits(rest), made.logits(rest))[0, 1] > 0.8
