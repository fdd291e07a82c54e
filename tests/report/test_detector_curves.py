"""Risk against coverage and calibration, against a plain loop."""

from __future__ import annotations

import base64
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from anchorscope.report.page.detector_curves import calibration, risk
from anchorscope.report.page.pack import Pack
from anchorscope.report.page.sample_data import _pack_curves
from reading_pages import Opened


@pytest.fixture
def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    right = rng.random(333) < 0.4
    return np.round(rng.normal(size=333) + right, 3), right, np.where(right, 0.9, 0.3)


def test_risk_is_that_of_a_loop(drawn):
    scores, right, probability = drawn
    points = risk(*drawn)
    assert points.shape[0] == 5
    assert 50 < points.shape[1] <= 62
    for x, y, first, last, size in points.T:
        kept = np.flatnonzero(scores >= last / 1000)
        assert len(kept) >= size  # equal scores may follow
        assert first == round(1000 * scores.max())
        surest = np.argsort(-scores, kind="stable")[:size]
        weights = 1 / probability[surest]
        assert x / 100 == pytest.approx(100 * weights.sum() / (1 / probability).sum(), abs=0.006)
        assert y / 100 == pytest.approx(100 * weights[~right[surest]].sum() / weights.sum(), abs=0.006)
    assert points[0, -1] == 10_000  # in the end all are kept


def test_calibration_is_that_of_a_loop(drawn):
    scores, right, _ = drawn
    points = calibration(scores, right)
    assert points.shape == (5, 10)
    assert points[4].sum() == len(right)
    order = iter(np.argsort(-scores, kind="stable"))
    for x, y, first, last, size in points.T:
        part = [next(order) for _ in range(size)]
        weights = [0.5 / right.sum() if right[i] else 0.5 / (~right).sum() for i in part]
        p_wrong = [1 / (1 + np.exp(scores[i])) for i in part]
        assert (first, last) == (round(1000 * scores[part[0]]), round(1000 * scores[part[-1]]))
        assert x / 100 == pytest.approx(100 * np.average(p_wrong, weights=weights), abs=0.006)
        assert y / 100 == pytest.approx(100 * np.average([not right[i] for i in part], weights=weights), abs=0.006)


def test_few_answers_or_one_kind_give_no_points():
    none = np.empty(0)
    assert risk(none, none == 1, none).shape == calibration(none, none == 1).shape == (5, 0)
    assert risk(np.zeros(9), np.ones(9, bool), np.ones(9)).shape == (5, 0)
    assert calibration(np.zeros(90), np.ones(90, bool)).shape == (5, 0)
    assert calibration(np.arange(20.0), np.arange(20) < 9).shape == (5, 0)


def test_samples_without_a_score_are_left_out():
    rows = [SimpleNamespace(id=str(i), correct=i % 2 == 0, probability=0.5) for i in range(140)]
    scores = {str(i): i / 70 - 1 for i in range(120)} | {"5": float("nan")}
    pack = Pack()
    of_risk, of_calibration = _pack_curves(pack, rows, scores)  # type: ignore[arg-type]
    page = Opened({"columns": pack.directory}, zlib.decompress(base64.b64decode(pack.text())))
    assert page.column(of_risk).reshape(5, -1)[4, -1] == page.column(of_calibration).reshape(5, -1)[4].sum() == 119
    assert all(page.column(number).size == 0 for number in _pack_curves(pack, rows, {}))
