"""What is drawn of the published figures is what the table of descriptions says, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from published_figures import SHADE, Compared, Described, compare, draw_published, read_described, with_all_sets
from redraw import in_order, point_of, statistics_of, studies_in

from anchorscope.evidence.chart_figures import DELTA_P
from anchorscope.pathways.lookup import ChartNumbers, collect
from anchorscope.report.csv import to_csv
from anchorscope.report.draw.lines import style
from anchorscope.report.draw.palette import A_COLOURS, Q_COLOURS

RESULTS = Path(__file__).parents[2] / "results"
PUBLISHED = RESULTS / "published"
pytestmark = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="results are in the repository, not in the package")


class Shown(NamedTuple):
    described: list[Described]
    numbers: ChartNumbers
    models: list[str]
    datasets: list[str]
    figure: Figure
    drawn: list[str]


@pytest.fixture(scope="module")
def shown() -> Shown:
    described = read_described(PUBLISHED / "described.csv")
    ours = [row for folder in studies_in(RESULTS) for row in statistics_of(folder / "delta_p.csv")]
    models, datasets = in_order(row.model for row in ours), in_order(row.dataset for row in ours)
    numbers = collect(ours, DELTA_P.keys, models, datasets, point_of(ours))
    with style():
        figure = draw_published(described, numbers, with_all_sets(ours), datasets, {})
    return Shown(described, numbers, models, datasets, figure, with_all_sets(ours))


def panel(shown: Shown, model: str) -> Axes:
    return next(axes for axes in shown.figure.axes if axes.get_title().strip() == model)


def boxes(axes: Axes, group: str) -> list[tuple[float, float]]:
    """The ranges that are drawn, low and high."""
    patches = [each for each in axes.patches if isinstance(each, Rectangle)]
    mine = [each for each in patches if each.get_facecolor() == to_rgba(SHADE[group])]
    return sorted((each.get_y(), each.get_y() + each.get_height()) for each in mine)


MODELS = ["Llama-3.2-1B", "Llama-3.2-3B", "Qwen3-8B", "Qwen3-32B"]


@pytest.mark.parametrize("group", ["Q", "A"])
@pytest.mark.parametrize("model", MODELS)
def test_ranges_are_drawn_as_they_were_described(shown: Shown, model: str, group: str):
    said = [row for row in shown.described if (row.model, row.group, row.dataset) == (model, group, "all")]
    ranges = sorted((row.low, row.high) for row in said if row.low is not None)
    assert ranges
    assert boxes(panel(shown, model), group) == ranges


@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_drawn_between_the_ranges(shown: Shown, model: str):
    colours = {*Q_COLOURS, *A_COLOURS}
    lines = [line for line in panel(shown, model).lines if line.get_color() in colours]
    marked = [row for row in shown.described if row.model == model and row.dataset not in ("all", "")]
    assert [len(line.get_xdata()) for line in lines] == [1] * len(marked)


def test_what_is_contested_is_in_the_table_and_not_in_the_picture(shown: Shown):
    contested = [row for row in shown.described if row.kind == "contested"]
    assert len(contested) == 7
    assert not {row.model for row in contested} & set(MODELS)
    assert {row.kind for row in shown.described} == {"read off", "contested"}


def test_all_panels_have_one_scale(shown: Shown):
    assert {axes.get_ylim() for axes in shown.figure.axes if axes.get_visible()} == {(-103.0, 13.0)}


def test_our_lines_are_those_of_the_chart(shown: Shown):
    compared = 0
    assert shown.drawn == ["SmolLM2-135M", "Gemma-3-270m"]
    for model in shown.drawn:
        axes = panel(shown, model)
        for curve in DELTA_P.rows[0].curves:
            for name in shown.datasets:
                line = [row for row in shown.numbers.of(curve.key, model, name) if row.value is not None]
                if not line:  # a study need not have every set, nor a group enough samples
                    continue
                values = {row.value for row in line}
                drawn = [each for each in axes.lines if {y for y in each.get_ydata() if y == y} == values]
                assert len(drawn) == 1, (model, name, curve.kind)
                compared += 1
    assert compared == 16


def test_the_numbers_of_the_page_are_those_of_the_tables(shown: Shown):
    made = to_csv(compare(shown.numbers, shown.models, shown.datasets), Compared)
    assert made == (PUBLISHED / "compared.csv").read_bytes(), "run: make results"


def test_no_words_overlap(shown: Shown):
    for axes in shown.figure.axes:
        words = [text.get_window_extent() for text in axes.texts if text.get_text()]
        inside = axes.get_window_extent()
        for place, one in enumerate(words):
            assert one.x1 <= inside.x1 + 1
            assert not any(one.overlaps(two) for two in words[place + 1 :])
