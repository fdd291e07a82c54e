"""The pictures of the ledger and of compared detectors show the numbers of their tables."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.compare import MEAN
from anchorscope.detectors.record import Comparison
from anchorscope.evidence.record import ClaimVerdict
from anchorscope.report.draw.detectors import picture
from anchorscope.report.draw.ledger import COLOURS, ledger_figure, transfer_figure
from anchorscope.report.draw.lines import style

CLAIM = ClaimVerdict(
    "mine", "m", "nq", "My statement", "ΔAUROC, knockout minus permuted", "permuted", -0.02, "below", -0.05, -0.08,
    -0.001, 0.01, "cannot tell", 100,
)  # fmt: skip


def ledger(*verdicts: ClaimVerdict) -> list[str]:
    with style():
        return [text.get_text() for text in ledger_figure(verdicts).axes[0].texts]


def test_a_field_has_value_and_interval_and_its_row_the_threshold_with_its_unit():
    words = ledger(CLAIM)
    assert "? −0.05\n−0.08 to 0.00" in words
    assert "< −0.02\nAUROC" in words
    points = dataclasses.replace(CLAIM, statistic="ΔP of Q (points)", threshold=-5.0, value=-12.6, low=-22.6, high=-1.2)
    assert {"? −12.6\n−22.6 to −1.2", "< −5\npoints"} <= set(ledger(points))
    test = dataclasses.replace(CLAIM, statistic="dip of Δlogit", threshold=0.0, p=1.0)
    assert {"? p 1.000", "p < 0.025"} <= set(ledger(test))
    assert "not measured" in ledger(dataclasses.replace(CLAIM, value=None, low=None, high=None, n=0))


def test_no_verdict_looks_like_a_failure():
    for answer, colour in COLOURS.items():
        red, green, blue = to_rgb(colour)
        assert red <= max(green, blue), answer


def compared(name: str, measure: str, value: float, dataset: str = MEAN) -> Comparison:
    return Comparison("m", dataset, name, measure, value, value - 0.02, value + 0.02, float("nan"))


@pytest.fixture
def figure() -> Figure:
    leads = {"single_layer": -0.1, "combined": -0.01, "question_only": -0.3}
    rows = [
        row
        for name, lead in leads.items()
        for dataset in ("nq", MEAN)
        for row in (compared(name, "auroc", 0.9 + lead, dataset), compared(name, "w_minus_logprob", lead, dataset))
    ]
    rows.append(compared("logprob_min", "auroc", 0.8))  # has no lead over itself
    with style():
        return picture(rows, catalogue())


def test_detectors_are_sorted_by_their_lead_and_each_has_every_number(figure: Figure):
    auroc, lead = figure.axes
    names = ["question_only", "single_layer", "combined"]
    assert [label.get_text() for label in auroc.get_yticklabels()] == [catalogue()[name].title for name in names]
    dots = [line.get_xdata()[0] for line in lead.lines if line.get_marker() == "o" and len(line.get_xdata())]
    assert dots == pytest.approx([-0.3, -0.1, -0.01])
    bars = [
        tuple(line.get_xdata()) for line in lead.lines if line.get_marker() == "None" and len(line.get_xdata()) == 2
    ]
    assert [end for bar in bars[:3] for end in bar] == pytest.approx([-0.32, -0.28, -0.12, -0.08, -0.03, 0.01])
    assert "ahead of log-probability (right)\nor behind (left)" in lead.get_xlabel()


def test_the_title_counts_who_is_ahead_and_behind(figure: Figure):
    title = figure.get_suptitle()
    assert title.startswith("Of 3 comparisons with log-probability, none is ahead and 2 are behind")


def test_without_a_lead_there_is_auroc_alone():
    with style():
        figure = picture(
            [compared("single_layer", "auroc", 0.8), compared("single_layer", "auroc", 0.8, "nq")], catalogue()
        )
    assert len(figure.axes) == 1
    assert "AUROC" in figure.axes[0].get_xlabel()


def test_a_matrix_of_transfer_has_its_numbers_and_shows_reversed_ranking_in_another_colour():
    values = {("popqa", "popqa"): 0.9, ("nq", "popqa"): 0.3, ("nq", "nq"): 0.8, ("popqa", "nq"): 0.6}
    with style():
        figure = transfer_figure({"m": values})
    assert figure is not None
    (axes,) = figure.axes
    (image,) = axes.images
    assert {(i, j): value for (i, j), value in np.ndenumerate(image.get_array())} == {
        **{(0, 0): 0.9, (0, 1): 0.6},  # rows: fitted on popqa, nq; columns: read on
        **{(1, 0): 0.3, (1, 1): 0.8},
    }
    red, _, blue, _ = image.cmap(image.norm(0.3))
    assert red > blue
    assert [text.get_text() for text in axes.texts] == ["0.90", "0.60", "0.30", "0.80"]
    assert transfer_figure({}) is None
