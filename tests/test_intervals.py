from __future__ import annotations

import pytest
from scipy.stats import binomtest

from anchorscope.intervals import share, wilson


@pytest.mark.parametrize(("count", "total"), [(0, 10), (1, 3), (84, 1_000), (1_000, 1_000), (500, 1_000)])
def test_wilson_is_scipys(count: int, total: int):
    expected = binomtest(count, total).proportion_ci(method="wilson")
    assert wilson(count, total) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_nothing_known_is_said_so():
    assert wilson(0, 0) == (0.0, 1.0)
    assert share(84, 1_000) == "84 of 1,000, 8.4 % (6.8 to 10.3)"
