"""The pictures of the ledger and of compared detectors show the numbers of their tables."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.compare import MEAN
from anchorscope.detectors.record import Comparison
from anchorscope.evidence.record import ClaimVerdict
from anchorscope.report.draw.detectors import picture
from anchorscope.report.draw.ledger import ledger_figure, scaled, transfer_figure
from anchorscope.report.draw.lines import style

CLAIM = ClaimVerdict(
    "mine", "m", "nq", "My statement", "ΔAUROC, knockout minus permuted", "permuted", -0.02, "below", -0.05, -0.08,
    -0.001, 0.01, "cannot tell", 100,
)  # fmt: skip


def ledger(*verdicts: ClaimVerdict) -> Figure:
    with style():
        return ledger_figure(verdicts)


def words_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in [*figure.texts, *figure.axes[0].texts]]


def mark(figure: Figure) -> Line2D:
    (line,) = (line for line in figure.axes[0].lines if len(line.get_xdata()) == 1)
    return line


def test_a_row_has_value_and_interval_by_its_threshold_and_the_unit_beside():
    figure = ledger(CLAIM)
    assert "< −0.02\nAUROC" in words_of(figure)
    (interval,) = (line for line in figure.axes[0].lines if len(set(line.get_ydata())) == 1 < len(line.get_xdata()))
    assert list(mark(figure).get_xdata()) == [scaled(-0.05 / -0.02)]
    assert list(interval.get_xdata()) == [scaled(-0.08 / -0.02), scaled(-0.001 / -0.02)]
    assert (scaled(0), scaled(1)) == (0, 1)
    assert "Of 1 verdicts, 0 hold, 0 do not hold, and 1 cannot tell." in words_of(figure)
    points = dataclasses.replace(CLAIM, statistic="ΔP of Q (points)", threshold=-5.0, value=-12.6, low=-22.6, high=-1.2)
    assert "< −5\npoints" in words_of(ledger(points))


def test_what_has_no_number_beyond_a_threshold_is_told_in_words():
    test = dataclasses.replace(CLAIM, statistic="dip of Δlogit", threshold=0.0, p=1.0)
    assert {"cannot tell, p = 1.000", "p < 0.025"} <= set(words_of(ledger(test)))
    assert "cannot tell, p = 1.000 (2 datasets)" in words_of(ledger(test, dataclasses.replace(test, dataset="popqa")))
    missing = dataclasses.replace(CLAIM, value=None, low=None, high=None, n=0)
    assert "cannot tell, not measured" in words_of(ledger(missing))
    beside = ledger(CLAIM, dataclasses.replace(missing, dataset="popqa"))
    assert "PopQA: not measured" in words_of(beside)
    assert mark(beside).get_ydata()[0] < next(text.get_position()[1] for text in beside.axes[0].texts)


def test_a_mark_is_filled_only_where_the_claim_holds():
    colour = to_rgba(mark(ledger(CLAIM)).get_color())
    marks = {
        answer: mark(ledger(dataclasses.replace(CLAIM, verdict=answer)))
        for answer in ("holds", "there is one", "does not hold", "cannot tell")
    }
    assert [marks[answer].get_fillstyle() for answer in ("holds", "there is one")] == ["full", "left"]
    assert to_rgba(marks["holds"].get_markerfacecolor()) == colour
    assert to_rgba(marks["cannot tell"].get_markerfacecolor()) == to_rgba("white")
    assert marks["does not hold"].get_marker() == "x"


@pytest.mark.parametrize(
    ("side", "threshold", "inside"),
    [("above", 0.05, True), ("below", -0.02, True), ("below", 10.0, False), ("above", -0.02, False)],
)
def test_the_coloured_zone_is_where_the_claim_holds(side: str, threshold: float, inside: bool):
    claim = dataclasses.replace(
        CLAIM, side=side, threshold=threshold, value=2 * threshold, low=threshold, high=3 * threshold
    )
    figure = ledger(claim)
    (zone,) = figure.axes[0].collections
    (path,) = zone.get_paths()
    left, right = path.get_extents().x0, path.get_extents().x1
    assert (left <= scaled(2) <= right) == inside
    assert left <= 1 <= right


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
