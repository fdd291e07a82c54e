"""How much wider intervals of detectors are than resamples of their scores, and that tables use it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.compare import MANY, compared, lookup, measure
from anchorscope.detectors.crossfit import FOLDS, area_of, folds_for
from anchorscope.detectors.score_widening import Widening, mean_widening, widening_of
from anchorscope.detectors.training import STRENGTHS
from anchorscope.pathways.widening import moved_areas, spreads
from anchorscope.probes.jackknife import jackknifed, make_groups
from anchorscope.study.terms import StateName
from made_up import make_samples


def pooled(*numbers: np.ndarray) -> float:
    """The factor of several numbers: what both roles give, and what testing gives, each summed over the numbers."""
    tested, both, crossed = np.sum([spreads(number.astype(float)) for number in numbers], axis=0)
    return max(1.0, float(np.sqrt((both - crossed / 2) / tested)))


def test_it_is_that_of_probes_that_stand_for_all():
    """Of one layer there is no choice: a probe of the answer, one of the question, and both side by side."""
    samples = make_samples(120, layers=1)
    kept = [StateName("clean", "mlp", position) for position in ("answer_last", "prompt_last")]
    samples = replace(
        samples, inputs=replace(samples.inputs, states={name: samples.inputs.states[name] for name in kept})
    )
    folds, groups = folds_for(samples, 1, FOLDS, 2), make_groups(samples.right, samples.clusters, 2)
    answer, question = (samples.inputs.states[name].layer(0) for name in kept)
    moved = []
    for features, blocks in ((answer, 1), (question, 1), (np.hstack([answer, question]), 2)):
        strengths = [strength / blocks for strength in STRENGTHS]
        trained = jackknifed(features, samples.right, samples.clusters, folds, strengths, groups, 2)
        moved.append(moved_areas(samples.right, groups, trained))
    one, asked, both = moved
    found = widening_of(samples, "mlp", 2)
    assert found.auroc == pytest.approx(pooled(one, asked, both))
    assert found.difference == pytest.approx(pooled(one - asked, one - both, asked - both))
    assert found.auroc > 1


def test_without_states_nothing_is_widened():
    samples = make_samples(80)
    bare = replace(samples, inputs=replace(samples.inputs, states={}))
    assert widening_of(bare, "mlp") == Widening(1.0, 1.0)


def test_intervals_of_the_table_are_as_much_wider_as_the_cell_says():
    samples = make_samples(100)
    rng = np.random.default_rng(0)
    names = ("single_layer", "question_only", "stack")
    scores = {name: rng.normal(size=(2, 100)) + samples.right for name in names}
    plain, wide = (
        measure("m", "d", samples, scores, catalogue(), resamples=200, widened=widened)
        for widened in (None, Widening(1.5, 2.0))
    )
    first, second = (lookup(compared([cell])) for cell in (plain, wide))
    for what, factor in (("beyond_baselines", 2.0), ("beyond_question", 2.0)):
        narrow, broad = (rows["m", "d", "stack", what] for rows in (first, second))
        assert broad.high - broad.low == pytest.approx(factor * (narrow.high - narrow.low))
        assert broad.p >= narrow.p
    every = MANY * 200  # AUROC is compared in so many resamples
    narrow, broad = (area_of(samples, scores, every, widened=factor)["stack"] for factor in (1.0, 1.5))
    assert broad.high - broad.low == pytest.approx(1.5 * (narrow.high - narrow.low))
    row = second["m", "d", "stack", "auroc"]
    assert (row.low, row.high) == pytest.approx((broad.low, broad.high), abs=1e-12)


def test_the_mean_over_cells_is_widened_by_what_the_sum_of_variances_gives():
    rng = np.random.default_rng(1)
    factors = [Widening(1.0, 1.5), Widening(2.0, 1.1), Widening(1.3, 3.0)]
    found = mean_widening(factors)
    for place in range(2):
        drawn = [factor[place] * rng.normal(size=200_000) for factor in factors]
        plain = [rng.normal(size=200_000) for _ in factors]
        assert found[place] == pytest.approx(np.mean(drawn, axis=0).std() / np.mean(plain, axis=0).std(), rel=0.02)
