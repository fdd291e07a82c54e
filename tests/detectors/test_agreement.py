"""Which answers say the same, and how much a model agrees with itself."""

from __future__ import annotations

import math

import pytest

from anchorscope.detectors.agreement import agreement, same
from anchorscope.grades.grading import grader

ASKED = "Who wrote Hamlet?"


def test_same() -> None:
    judge = grader()
    assert same(judge, ASKED, "William Shakespeare", "william  shakespeare")
    assert same(judge, ASKED, "The United States", "United States")
    assert not same(judge, ASKED, "William Shakespeare", "Ben Jonson")
    assert not same(judge, ASKED, "", "Ben Jonson")


def test_agreement() -> None:
    share, entropy = agreement(grader(), ASKED, "Shakespeare", ["Shakespeare", "Ben Jonson", "shakespeare", "Marlowe"])
    assert share == 0.5
    expected = -(0.6 * math.log(0.6) + 2 * 0.2 * math.log(0.2))
    assert entropy == pytest.approx(expected)
    assert agreement(grader(), ASKED, "a", ["a", "a"]) == (1.0, 0.0)
