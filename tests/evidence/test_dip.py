"""The dip against its definition, solved as a linear program for every mode there may be."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import linprog

from anchorscope.evidence.dip import ALTERNATIVES, dip, dip_test, dip_within, dips, placed_within, two_groups


def by_definition(values: np.ndarray) -> float:
    """The least distance to a distribution function that is convex up to a mode and concave behind it.

    Modes between values need not be tried: a straight line over the gap, with the mode at one of its ends, is as near.
    """
    x, counts = np.unique(values, return_counts=True)
    high = np.cumsum(counts) / len(values)
    return min(_nearest(x, high - counts / len(values), high, mode) for mode in range(len(x)))


def _nearest(x: np.ndarray, low: np.ndarray, high: np.ndarray, mode: int) -> float:
    """The sample jumps from low to high at each x. Unknown: G at each x, G just before the mode, the distance d."""
    size = len(x)
    unit = np.eye(size + 2)
    at, distance = unit[:size], unit[size + 1]
    before = at.copy()  # G has no jumps but at the mode
    before[mode] = unit[size]
    rows, bounds = [before[mode] - at[mode]], [0.0]
    for i in range(size):
        for value, known in ((before[i], low[i]), (at[i], high[i])):
            rows += [value - distance, -value - distance]
            bounds += [known, -known]
    slopes = [(before[i + 1] - at[i]) / (x[i + 1] - x[i]) for i in range(size - 1)]
    for i, slope in enumerate(slopes):
        rows.append(-slope)
        if i + 1 < mode:
            rows.append(slope - slopes[i + 1])
        elif mode < i + 1 < size - 1:
            rows.append(slopes[i + 1] - slope)
    bounds += [0.0] * (len(rows) - len(bounds))
    solved = linprog(distance, A_ub=np.array(rows), b_ub=bounds, bounds=[(0, 1)] * (size + 2))
    assert solved.status == 0
    return float(solved.fun)


def drawn(kind: str, random: np.random.Generator) -> np.ndarray:
    n = int(random.integers(1, 13))
    if kind == "apart":
        return random.normal(size=n) + (np.arange(n) < n // 2) * random.uniform(0, 9)
    return {
        "uniform": lambda: random.random(n),
        "skewed": lambda: random.exponential(size=n) ** 2,
        "ties": lambda: random.integers(0, 6, n).astype(float),
        "grid": lambda: np.round(3 * random.normal(size=n)),
    }[kind]()


@pytest.mark.parametrize("kind", ["uniform", "skewed", "apart", "ties", "grid"])
def test_it_is_the_least_distance_to_one_mode(kind):
    random = np.random.default_rng(len(kind))
    for _ in range(40):
        values = drawn(kind, random)
        assert dip(values) == pytest.approx(by_definition(values), abs=1e-9)


@pytest.mark.parametrize("n", [2, 3, 10, 501])
def test_a_uniform_grid_has_the_least_without_ties(n):
    assert dip(np.linspace(-3, 8, n)) == pytest.approx(1 / (2 * n))


def test_two_points_far_apart_have_a_quarter_and_one_point_has_none():
    assert dip(np.repeat([0.0, 1.0], 50)) == pytest.approx(0.25)
    assert dip(np.full(7, 3.0)) == 0
    assert dip(np.array([3.0])) == 0
    with pytest.raises(ValueError, match="finite"):
        dip(np.array([]))
    with pytest.raises(ValueError, match="finite"):
        dip(np.array([1.0, np.nan]))


def test_order_place_and_scale_change_nothing():
    values = np.random.default_rng(1).gamma(1.0, size=80)
    values[:30] += 3
    for other in (values[::-1], -values, 7 * values - 100):
        assert dip(other) == pytest.approx(dip(values), abs=1e-12)


def test_one_group_is_seldom_taken_for_two():
    """Uniform is the worst of one mode: there p is a share as promised; elsewhere it is larger."""
    random = np.random.default_rng(2)
    p = np.array([dip_test(random.random(40), seed=0, draws=400).p_unimodal for _ in range(300)])
    for level in (0.05, 0.2, 0.5):
        assert (p <= level).mean() == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / 300) + 0.02)
    normal = np.array([dip_test(random.normal(size=40), seed=0, draws=400).p_unimodal for _ in range(100)])
    assert (normal <= 0.05).mean() <= 0.05


def test_two_clear_groups_are_found_and_one_is_not_taken_for_them():
    random = np.random.default_rng(3)
    two = random.normal(size=400)
    two[:140] += 6
    found = dip_test(two, seed=0, draws=300)
    assert found.p_unimodal < 0.01
    assert found.p_two_groups > 0.5
    one = dip_test(random.normal(size=400), seed=0, draws=300)
    assert one.p_unimodal > 0.1
    assert one.p_two_groups < 0.01
    assert found.statistic > one.statistic == dip_test(one_again(3), seed=0, draws=300).statistic


@pytest.mark.parametrize(("share", "apart"), ALTERNATIVES)
def test_groups_that_are_stated_are_seldom_ruled_out(share: float, apart: float):
    """Within strata: p below 0.025 in at most 2.5 % of draws from either alternative, but for chance."""
    drawn = dips(two_groups(np.random.default_rng(5), (5 * 200, 80), share, apart)).reshape(200, 5).mean(axis=1)
    p = np.array([placed_within(float(statistic), [80] * 5, draws=400).p_two_groups for statistic in drawn])
    assert (p < 0.025).mean() <= 0.06
    assert (p < 0.5).mean() > 0.2  # nor is p always large


def test_p_of_two_groups_is_the_largest_share_of_draws_with_so_small_a_dip():
    """Against draws made here value by value."""
    random = np.random.default_rng(6)
    values = two_groups(random, (200,), 0.25, 4.0)
    shares = []
    for share, apart in ALTERNATIVES:
        drawn = [[random.normal() + (apart if random.random() < share else 0) for _ in values] for _ in range(200)]
        shares.append((dips(np.array(drawn)) <= dip(values)).mean())
    assert 0.1 < max(shares) < 0.9
    assert abs(shares[0] - shares[1]) > 0.15, shares  # the two cannot be mistaken for each other
    assert dip_test(values, draws=400).p_two_groups == pytest.approx(max(shares), abs=0.12)


def test_strata_are_placed_among_strata_of_their_sizes():
    random = np.random.default_rng(7)
    strata = np.repeat(np.arange(3), [30, 50, 40])
    values = random.normal(size=120)
    mean = np.mean([dip(values[strata == stratum]) for stratum in range(3)])
    drawn = np.mean([dips(random.random((300, size))) for size in (30, 50, 40)], axis=0)
    found = dip_within(values, strata, draws=400)
    assert found.statistic == pytest.approx(mean)
    assert found.p_unimodal == pytest.approx((drawn >= mean).mean(), abs=0.12)


def one_again(seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    random.normal(size=400)
    return random.normal(size=400)


def test_the_same_seed_gives_the_same_and_another_nearly_so():
    values = np.random.default_rng(4).beta(0.7, 0.7, size=60)
    first, again, other = (dip_test(values, seed=seed, draws=400) for seed in (0, 0, 1))
    assert first == again
    assert first.statistic == other.statistic
    assert first.p_unimodal != other.p_unimodal
    assert first.p_unimodal == pytest.approx(other.p_unimodal, abs=0.12)


def test_torch_is_not_needed():
    code = "import sys; import anchorscope.evidence.dip; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
