"""Hartigan's dip: how far a sample is from having one mode, and whether it looks like one group or like two.

Two groups are told by a dip too large for a uniform distribution. That there are none can only be said of groups
of a certain size and distance, so these are stated: ALTERNATIVES. A dip that is too small for all of them rules such
groups out, not smaller or nearer ones (checks/two_groups_power.py prints what is found and what is ruled out).

The dip of a sample is the distance (largest difference of distribution functions) to the nearest distribution with one
mode: convex up to the mode, concave behind it, with any mass at the mode itself. A uniform grid of n values has
1 / 2n, which is the least without ties; two points of half the sample each have the most, 1 / 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

ALTERNATIVES = ((0.25, 4.0), (0.1, 8.0))
"""Two normal groups that can be ruled out: share of the smaller one, and standard deviations between their means."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Dip:
    """A sample's dip, held against one group and against two."""

    statistic: float
    """The dip: between 0 and 1/4."""
    p_unimodal: float
    """Share of samples from a uniform distribution, as many values each, with a dip at least as large."""
    p_two_groups: float
    """Share of samples from two groups with a dip at most as large; the largest share among all ALTERNATIVES."""


def dip_test(values: Floats, seed: int = 0, draws: int = 2000) -> Dip:
    """The dip of some values, and where it stands among draws of one group and of two."""
    return _placed(dip(values), _references(len(values), seed, draws))


def dip_within(values: Floats, strata: Ints, draws: int = 2000) -> Dip:
    """The same within strata: the mean of their dips, against as many draws of as many values each.

    Nothing is subtracted: where the share of two groups differs between strata, their means would smear the groups.
    """
    sizes = np.bincount(strata)
    statistic = float(np.mean([dip(values[strata == stratum]) for stratum in np.unique(strata)]))
    return placed_within(statistic, sizes[sizes > 0].tolist(), draws)


def placed_within(statistic: float, sizes: Sequence[int], draws: int = 2000) -> Dip:
    """A mean of dips, one for each stratum, among as many draws of strata of these sizes."""
    random = np.random.default_rng(0)
    means = np.zeros((1 + len(ALTERNATIVES), draws))
    for size in sizes:
        for mean, drawn in zip(means, _references(size, 0, draws), strict=True):
            mean += random.permutation(drawn) / len(sizes)
    return _placed(statistic, means)


def _placed(statistic: float, references: Floats) -> Dip:
    """A dip among those of one group, row 0 of the references, and of each alternative, the other rows."""
    return Dip(
        statistic,
        p_unimodal=_as_large(references[0], statistic),
        p_two_groups=max(_as_large(-drawn, -statistic) for drawn in references[1:]),
    )


def _as_large(drawn: Floats, value: float) -> float:
    """The share of draws that are as large. Where that is rare, by how the excess of the largest tenth falls off.

    A hundred claims at once ask for smaller shares than so many draws can show.
    """
    share = float((1 + (drawn >= value - 1e-12).sum()) / (1 + len(drawn)))  # two orders of adding up may differ a hair
    start = float(np.quantile(drawn, 0.9))
    excess = float((drawn[drawn > start] - start).mean()) if (drawn > start).any() else 0.0
    if share > 0.01 or excess <= 0:
        return share
    return min(share, 0.1 * float(np.exp(-(value - start) / excess)))


def dip(values: Floats) -> float:
    """The dip of some values."""
    places, counts = np.unique(np.asarray(values, np.float64), return_counts=True)
    if len(places) == 0 or not np.isfinite(places).all():
        raise ValueError("a dip needs at least one finite value, and no infinite ones")
    return float(_dips(places[None], counts)[0])


@cache
def _references(n: int, seed: int, draws: int) -> Floats:
    """(1 + alternative, draw): the dips of draws from one uniform group, and from two groups of every alternative."""
    random = np.random.default_rng([seed, n])
    drawn = [random.random((draws, n))]
    drawn += [two_groups(random, (draws, n), share, apart) for share, apart in ALTERNATIVES]
    return np.stack([dips(values) for values in drawn])


def dips(rows: Floats) -> Floats:
    """The dip of each row of values without ties; many rows at once are much faster than one by one."""
    return _dips(np.sort(rows, axis=1), np.ones(rows.shape[1], np.int64))


def two_groups(random: np.random.Generator, shape: tuple[int, ...], share: float, apart: float) -> Floats:
    """Draws from two normal groups: each value is in the smaller one with probability `share`, `apart` SD away."""
    return random.standard_normal(shape) + apart * (random.random(shape) < share)


def _dips(places: Floats, counts: Ints) -> Floats:
    """The dip of each row of ascending, distinct places, (row, place), of which each holds `counts` values.

    By Hartigan and Hartigan (1985): the mode is somewhere in an interval, at first in the whole range. Below, the
    distribution function jumps from `low` to `high` at each place. Its greatest convex minorant goes through some of
    the lows, its least concave majorant through some of the highs. A distribution with one mode follows the first up to
    the interval and the second behind it, each half of `far` away from the sample, at least; within the interval it can
    go in between where these two are no more than `far` apart. Where they are, the interval shrinks to around the
    place where they are furthest apart.
    """
    high = np.cumsum(counts)
    low = high - counts
    total = int(high[-1])
    last = places.shape[1] - 1
    before = _knots_before(places, low)
    after = last - _knots_before(-places[:, ::-1], total - high[::-1])[:, ::-1]
    return np.array([_far(*row, low, high) for row in zip(places, before, after, strict=True)]) / (2 * total)


def _knots_before(places: Floats, heights: Ints) -> Ints:
    """(row, place): the knot before the last one of the greatest convex minorant of all points up to a place."""
    rows, count = places.shape
    knots = np.zeros((rows, count), np.int64)
    for end in range(1, count):
        knots[:, end] = end - 1
        active = np.arange(rows) if end > 1 else np.arange(0)
        while len(active):
            # 1. a knot goes where the way to it is no less steep than the way on from it
            knot = knots[active, end]
            earlier = knots[active, knot]
            x0, x1, x2 = (places[active, point] for point in (earlier, knot, end))
            y0, y1, y2 = (heights[point] for point in (earlier, knot, end))
            goes = (y1 - y0) * (x2 - x1) >= (y2 - y1) * (x1 - x0)
            # 2. those whose knot went look at the one before it, until that is the first point
            active, earlier = active[goes], earlier[goes]
            knots[active, end] = earlier
            active = active[earlier > 0]
    return knots


def _far(places: Floats, before: Ints, after: Ints, low: Ints, high: Ints) -> float:
    """Twice the dip of one sample, in values."""
    first, last, far = 0, len(places) - 1, 0.0
    while first < last:
        # 1. both curves over the interval, by their knots
        under, over = _chain(before, last, first)[::-1], _chain(after, first, last)
        between = np.union1d(under, over)
        gaps = np.interp(places[between], places[over], high[over]) - np.interp(
            places[between], places[under], low[under]
        )
        widest = int(gaps.argmax())
        if gaps[widest] <= far:
            break
        # 2. where they are furthest apart, between a knot of the one and a knot of the other
        here = between[widest]
        new_first, new_last = under[under <= here].max(), over[over >= here].min()
        # 3. how far the curves are from the sample outside of that
        left, right = np.arange(first, new_first), np.arange(new_last + 1, last + 1)
        far = max(
            far,
            (high[left] - np.interp(places[left], places[under], low[under])).max(initial=0),
            (np.interp(places[right], places[over], high[over]) - low[right]).max(initial=0),
        )
        first, last = int(new_first), int(new_last)
    return far


def _chain(links: Ints, start: int, end: int) -> Ints:
    """Knots from a start to an end, which a link may jump over where it lies on a straight line."""
    chain = [start]
    while chain[-1] != end:
        onward = int(links[chain[-1]])
        chain.append(max(onward, end) if end < start else min(onward, end))
    return np.array(chain)
