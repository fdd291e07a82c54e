"""Charts with one dataset a panel: every line is where the table says, and the title says the table's means."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from anchorscope.evidence.within import CHART as WITHIN
from anchorscope.pathways.chart import Chart
from anchorscope.pathways.lookup import collect
from anchorscope.pathways.record import Key, Statistic
from anchorscope.report.draw.lines import style
from anchorscope.report.figures import figure_from
from anchorscope.report.text.describe import panels_of, picture_in_words
from anchorscope.study.terms import ReadPoint
from figure_rows import CHARTS, number, numbers

PLACE = ReadPoint("mlp", "answer_last")
MODELS, SETS = {"small": 5, "large": 8}, ("popqa", "nq")
NULLS = CHARTS["nulls"]


def figure_of(rows: list[Statistic], chart: Chart = NULLS, sets: tuple[str, ...] = SETS) -> Figure:
    found = collect(rows, chart.keys, list(MODELS), sets, PLACE)
    with style():
        return figure_from(chart, found, list(MODELS), sets, MODELS)


def values_of(rows: list[Statistic], key: Key, model: str, dataset: str) -> list[float]:
    """The slow way: every row of the table is looked at."""
    mine = [row for row in rows if (row.key, row.model, row.dataset, row.site) == (key, model, dataset, "mlp")]
    return [float("nan") if row.value is None else row.value for row in sorted(mine, key=lambda row: row.layer)]


def said(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


@pytest.fixture(scope="module")
def rows() -> list[Statistic]:
    return list(numbers(MODELS, SETS))


def test_each_panel_has_one_dataset_and_the_lines_of_its_row(rows: list[Statistic]):
    axes = iter(figure_of(rows).axes)
    for row in NULLS.rows:
        for model in MODELS:
            for dataset in SETS:
                drawn = [line.get_ydata() for line in next(axes).lines[2:]]  # behind the level and the middle layer
                expected = [values_of(rows, curve.key, model, dataset) for curve in row.curves]
                np.testing.assert_array_equal(drawn, expected)
    assert next(axes, None) is None


def test_the_title_says_the_means_at_the_middle_layer(rows: list[Statistic]):
    (title,) = [words for words in said(figure_of(rows)) if words.startswith("(a)")]
    for key, written in zip((curve.key for curve in NULLS.rows[0].curves), re.findall(r"−\d+", title), strict=True):
        middle = [values_of(rows, key, model, name)[round((n - 1) / 2)] for model, n in MODELS.items() for name in SETS]
        assert int(written.replace("−", "-")) == round(sum(middle) / len(middle))
    assert any(
        words.startswith("Numbers: middle layer (upright line), mean over 4 combinations of model and dataset.")
        for words in said(figure_of(rows))
    )


def test_a_pair_without_a_value_is_left_out_of_the_means_and_says_so(rows: list[Statistic]):
    few = [
        dataclasses.replace(row, value=None, low=None, high=None)
        if (row.model, row.dataset, row.group) == ("large", "nq", "Q-A")
        else row
        for row in rows
    ]
    figure = figure_of(few)
    assert [text.get_text() for text in figure.axes[3].texts] == ["too few answers"]
    assert any(
        words.startswith("Numbers: middle layer (upright line), mean over 3 combinations of model and dataset.")
        for words in said(figure)
    )


def test_models_stand_side_by_side_where_there_is_one_dataset(rows: list[Statistic]):
    first, second = figure_of(rows, sets=("nq",)).axes[:2]
    assert (first.get_title(), second.get_title()) == ("small", "large")
    assert first.get_position().y0 == second.get_position().y0


def test_words_stay_on_paper_and_panels_apart(rows: list[Statistic]):
    figure = figure_of(rows)
    figure.draw_without_rendering()
    paper = figure.bbox
    boxes = [axes.get_tightbbox() for axes in figure.axes] + [text.get_window_extent() for text in figure.texts]
    for number_of, box in enumerate(boxes):
        assert box is not None
        assert paper.x0 - 1 <= box.x0 <= box.x1 <= paper.x1 + 1
        assert paper.y0 - 1 <= box.y0 <= box.y1 <= paper.y1 + 1
        for other in boxes[number_of + 1 :]:
            assert other is not None
            assert not box.padded(-2).overlaps(other)


def test_log_probability_is_a_level_line_and_told_in_words():
    key = WITHIN.rows[0].beside
    assert key is not None
    within = [
        number(model=model, dataset=name, layer=layer, value=0.7, low=0.6, high=0.8, n=50, **curve.key._asdict())
        for model, layers in MODELS.items()
        for name in SETS
        for row in WITHIN.rows
        for curve in row.curves
        for layer in range(layers)
    ]
    within += [
        number(model=model, dataset=name, layer=-1, value=0.9, low=0.85, high=0.95, n=50, **key._asdict())
        for model in MODELS
        for name in SETS
    ]
    figure = figure_of(within, WITHIN)
    assert list(figure.axes[0].lines[-1].get_ydata()) == [0.9, 0.9]
    assert "mean log-probability" in str([text.get_text() for text in figure.legends[0].get_texts()])
    assert "0.70 of the pairs correctly, log-probability 0.90" in said(figure)[0]
    panels = panels_of(WITHIN, collect(within, WITHIN.keys, list(MODELS), SETS, PLACE), list(MODELS), SETS)
    assert "PopQA 0.900 and NQ 0.900" in picture_in_words(WITHIN, panels, PLACE)
