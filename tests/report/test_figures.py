from __future__ import annotations

import csv
import dataclasses
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from anchorscope import AnchorscopeError
from anchorscope.pathways.lookup import collect
from anchorscope.pathways.record import Statistic
from anchorscope.report.draw.lines import draw_chart, style
from anchorscope.report.draw.palette import A_COLOURS, Q_COLOURS, looks
from anchorscope.report.figures import draw
from anchorscope.report.text.caption import caption
from anchorscope.study.terms import ReadPoint
from figure_rows import CHARTS, MODELS, SETS, number, numbers
from whole import only_svg

ODD = "_my-own 50% set_$x_1$ & <more> {of} " + "very-" * 12 + "long"
PLACE = ReadPoint("mlp", "answer_last")


def chart_of(
    name: str, rows: Sequence[Statistic], models: dict[str, int] = MODELS, datasets: Sequence[str] = SETS
) -> Figure:
    found = collect(rows, CHARTS[name].keys, list(models), datasets, PLACE)
    with style():
        return draw_chart(CHARTS[name], found, list(models), datasets, models)


def delta_p(model: str, dataset: str, values: Sequence[float | None], group: str = "Q") -> list[Statistic]:
    return [
        number(model=model, dataset=dataset, layer=k, group=group, split="layer", value=v, low=v, high=v, n=50)
        for k, v in enumerate(values)
    ]


def lines(axes: Axes) -> dict[str, Line2D]:
    """The lines of a panel by their legend's words; without the reference line."""
    return {str(line.get_label()): line for line in axes.lines if not str(line.get_label()).startswith("_child")}


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def lightness(colour: str) -> float:
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16)


@pytest.fixture(scope="module")
def rows() -> list[Statistic]:
    return list(numbers())


@pytest.fixture(scope="module")
def folder(figures: Path) -> Path:
    return figures


def test_every_chart_is_five_files(folder: Path):
    expected = {f"{name}.{suffix}" for name in CHARTS for suffix in ("png", "svg", "pdf", "csv", "txt")}
    assert {path.name for path in folder.iterdir()} == expected


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("name", CHARTS)
def test_the_csv_holds_exactly_the_numbers_of_the_lines(name: str, rows: list[Statistic], folder: Path):
    figure = chart_of(name, rows)
    drawn = []
    for axes in figure.axes:
        for label, line in lines(axes).items():
            tick = label.startswith("anchor layer")
            x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
            drawn += [(-1.0, float(v)) for v in x] if tick else list(zip(x.tolist(), y.tolist(), strict=True))
    table = read_csv(folder / f"{name}.csv")
    assert tuple(table[0]) == tuple(field.name for field in dataclasses.fields(Statistic))
    written = [(float(row["layer"]), float(row["value"] or "nan")) for row in table]
    assert sorted(map(repr, drawn)) == sorted(map(repr, written))
    known = {tuple("" if v is None else str(v) for v in dataclasses.astuple(row)) for row in rows}
    assert {tuple(row.values()) for row in table} <= known  # every column as it is in the table


def test_a_panel_shows_its_model_and_a_line_its_group_and_dataset(rows: list[Statistic]):
    figure = chart_of("delta_p", rows)
    assert len(figure.axes) == 2
    for axes, (model, layers) in zip(figure.axes, MODELS.items(), strict=True):
        assert model in [text.get_text() for text in axes.texts]
        assert axes.get_xlabel() == "Layer"
        assert axes.get_xlim() == (-0.5, layers - 0.5)
        for dataset, pretty in zip(SETS, ("PopQA", "TriviaQA", "HotpotQA", "NQ"), strict=True):
            for group in "QA":
                expected = [
                    math.nan if row.value is None else row.value
                    for row in rows
                    if (row.model, row.dataset, row.group, row.split) == (model, dataset, group, "layer")
                    and (row.site, row.statistic, row.condition) == ("mlp", "delta_p", "knockout")
                ]
                got = lines(axes)[f"{group}-Anchored ({pretty})"].get_ydata()
                np.testing.assert_array_equal(got, expected)
    assert figure.axes[0].get_ylabel() == "ΔP (percentage points)"
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()


HALF = "delta_p knockout anchor_half best"
PLACEBO = "delta_p matched_{0}-control_{0} anchor_half best none Q all"
ROWS = {  # statistic, condition, split, anchor, correction, group, stratum of each line, row by row
    "delta_p": ["delta_p knockout layer none none Q all, delta_p knockout layer none none A all"],
    "delta_p_controlled": [
        f"{HALF} none Q all, {HALF} none A all",
        f"{PLACEBO.format('question')}, {PLACEBO.format('random')}",
        "delta_p matched_question layer_half none none all all, delta_p control_question layer_half none none all all",
    ],
    "delta_p_strata": [
        f"{HALF} none Q predicted_correct, {HALF} none A predicted_correct",
        f"{HALF} none Q predicted_wrong, {HALF} none A predicted_wrong",
        f"{HALF} drift Q all, {HALF} drift A all",
    ],
    "auroc": [
        "auroc clean none none none all all, auroc_question_only clean none none none all all",
        "delta_auroc matched_question none none none all all, delta_auroc control_question none none none all all",
    ],
    "nulls": [
        "delta_p knockout anchor_half half none Q-A all, delta_p permuted anchor_half half none Q-A all",
        "delta_auroc knockout none none none all all, delta_auroc permuted none none none all all",
        "delta_auroc knockout none none none all all, delta_auroc_refit knockout none none none all all",
    ],
}


@pytest.mark.parametrize("name", CHARTS)
def test_each_row_of_panels_shows_what_it_should(name: str, rows: list[Statistic]):
    figure = chart_of(name, rows)
    model = list(MODELS)[1]
    for axes, row in zip(figure.axes[len(ROWS[name]) :], ROWS[name], strict=True):  # the second model's
        solid, other = row.split(", ")
        drawn = {(line.get_linestyle() == "-", line.get_marker()): line for line in lines(axes).values()}
        for what, is_solid in ((solid, True), (other, False)):
            for dataset in SETS:
                expected = [
                    r.value
                    for r in rows
                    if (r.model, r.dataset, r.site) == (model, dataset, "mlp")
                    and f"{r.statistic} {r.condition} {r.split} {r.anchor} {r.correction} {r.group} {r.stratum}" == what
                ]
                y = drawn[is_solid, looks(SETS)[dataset].marker].get_ydata()
                np.testing.assert_array_equal(np.asarray(y, float), np.array(expected, float))


def test_colours_and_strokes_are_the_published_ones(rows: list[Statistic]):
    # FIGURES.md by hue in degrees (red 0, green 120, blue 240); brown is a dark orange, gray has no hue
    hues = {"blue": (200, 240), "green": (100, 150), "purple": (255, 290), "pink": (310, 340)}
    hues |= {"orange": (25, 45), "red": (-10, 10), "brown": (10, 35)}
    panel = lines(chart_of("delta_p", rows).axes[0])
    for group, names in (("Q", ("blue", "green", "purple", "pink")), ("A", ("orange", "red", "brown", "gray"))):
        for dataset, name in zip(("PopQA", "TriviaQA", "HotpotQA", "NQ"), names, strict=True):
            line = panel[f"{group}-Anchored ({dataset})"]
            assert line.is_dashed() == (group == "A")
            rgb = to_rgb(line.get_color())
            hue, saturation, value = matplotlib.colors.rgb_to_hsv(rgb)
            if name == "gray":
                assert saturation < 0.05
                continue
            low, high = hues[name]
            assert low <= (360 * hue + 10) % 360 - 10 <= high, name
            assert (value < 0.5) == (name in ("brown", "purple")), name
            assert line.get_marker() == panel[f"Q-Anchored ({dataset})"].get_marker()
    assert len({line.get_marker() for line in panel.values()}) == 4


@pytest.mark.parametrize("colours", [Q_COLOURS[:4], A_COLOURS[:4]])
def test_the_lines_of_a_group_differ_in_grey(colours: tuple[str, ...]):
    ordered = sorted(map(lightness, colours))
    assert min(np.diff(ordered)) > 10
    assert ordered[-1] < 80  # none is lost on white paper


def test_published_sets_keep_their_colours_and_others_take_what_is_free():
    everywhere, alone = looks(SETS), looks(["nq"])
    assert (alone["nq"].q, alone["nq"].a) == (everywhere["nq"].q, everywhere["nq"].a)
    mixed = looks(["mine", "triviaqa", "yours", *(f"set{i}" for i in range(20))])
    assert mixed["triviaqa"].q == everywhere["triviaqa"].q
    assert (mixed["mine"].q, mixed["yours"].q) == (Q_COLOURS[0], Q_COLOURS[2])
    assert len({(look.q, look.marker) for look in mixed.values()}) == len(mixed)


def test_a_group_that_is_too_few_is_a_gap_and_its_marker_is_still_seen():
    values = [-1.0, None, -3.0, None, -5.0, -6.0]
    figure = chart_of("delta_p", delta_p("m", "nq", values), {"m": 6}, ["nq"])
    line = lines(figure.axes[0])["Q-Anchored (NQ)"]
    np.testing.assert_array_equal(line.get_ydata(), [math.nan if v is None else v for v in values])
    assert {0, 2} <= set(line.get_markevery())  # points that no line reaches
    assert not {1, 3} & set(line.get_markevery())


def test_a_line_that_is_missing_says_so():
    rows = [
        *delta_p("one", "nq", [-1.0, -2.0]),
        *delta_p("two", "nq", [None, None]),
        *delta_p("one", "popqa", [None, None]),
        *delta_p("two", "popqa", [None, None]),
        *delta_p("one", "nq", [-1.0, -1.0], "A"),
    ]
    figure = chart_of("delta_p", rows, {"one": 2, "two": 2}, ["nq", "popqa"])
    expected = ["Q-Anchored (NQ)", "A-Anchored (NQ)", "Q-Anchored (PopQA) (too few)", "A-Anchored (PopQA) (no data)"]
    assert words(figure) == expected
    notes = [" ".join(text.get_text() for text in axes.texts).replace("\n", " ") for axes in figure.axes]
    assert "too few: Q-Anchored (PopQA)" in notes[0]
    assert "too few: Q-Anchored (NQ, PopQA)" in notes[1]
    said = caption("delta_p", rows, ["one", "two"], ["nq", "popqa"])
    assert "Too few samples for a line: two, Q-Anchored (NQ), Q-Anchored (PopQA)." in said


def test_a_row_without_any_line_still_reads_well(rows: list[Statistic]):
    few = [dataclasses.replace(row, value=None, low=None, high=None) if "-" in row.condition else row for row in rows]
    figure = chart_of("delta_p_controlled", few)
    for axes in figure.axes[1::3]:
        assert list(axes.get_yticks()) == [0]
        assert any(text.get_text().startswith("too few") for text in axes.texts)
    assert len(figure.axes[0].get_yticks()) > 3
    assert_nothing_overlaps(figure)


@pytest.mark.parametrize(("models", "columns"), [(1, 1), (2, 2), (3, 3), (4, 2), (7, 3)])
def test_any_number_of_models_and_datasets_fits_on_paper(models: int, columns: int):
    datasets = [*SETS, ODD, "another_set", "third%"][: models + 1]
    sizes = {f"Model-{i}-{ODD if i == 1 else ''}": 3 + i for i in range(models)}
    rows = [
        row
        for model, layers in sizes.items()
        for name in datasets
        for group in "QA"
        for row in delta_p(model, name, np.linspace(-1, -60, layers).tolist(), group)
    ]
    figure = chart_of("delta_p", rows, sizes, datasets)
    assert len(figure.axes) == models
    assert len({round(axes.get_position().x0, 3) for axes in figure.axes}) == columns
    assert figure.get_figwidth() == (4.4 if models == 1 else 7.2)
    assert_nothing_overlaps(figure)


def assert_nothing_overlaps(figure: Figure) -> None:
    (legend,) = figure.legends
    below, paper = legend.get_window_extent(), figure.bbox
    assert paper.x0 <= below.x0
    assert below.x1 <= paper.x1
    assert paper.y0 <= below.y0
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    for box in boxes:
        assert box is not None
        assert box.y0 >= below.y1 - 1
        assert box.y1 <= paper.y1 + 1
        assert box.x1 <= paper.x1 + 1
    for axes in figure.axes:
        for text in axes.texts:
            assert text.get_window_extent().x1 <= paper.x1 + 1, text.get_text()
            others = [other for other in figure.axes if other is not axes]
            inside = [other.bbox.overlaps(text.get_window_extent()) for other in others]
            assert not any(inside), text.get_text()


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("count", [1, 2])
def test_words_stay_on_paper_and_out_of_the_panels(name: str, count: int, rows: list[Statistic]):
    figure = chart_of(name, rows, dict(list(MODELS.items())[:count]))
    assert_nothing_overlaps(figure)
    assert len({round(axes.get_position().width, 3) for axes in figure.axes}) == 1
    assert sum(axes.get_position().width for axes in figure.axes) > 0.83 * len(CHARTS[name].rows)  # no room is lost
    titles = [text for axes in figure.axes for text in axes.texts if text.get_text().startswith("(")]
    assert len(titles) == (len(CHARTS[name].rows) if len(CHARTS[name].rows) > 1 else 0)


def test_names_are_drawn_letter_by_letter(tmp_path: Path):
    odd = "_a$x_1$ & <50%> {0}"
    rows = [*delta_p(odd, odd, [-1.0, -2.0]), *delta_p(odd, odd, [-1.0, -2.0], "A")]
    rows += [number(model=odd, dataset=odd, condition="clean", statistic="auroc", value=0.7, low=0.6, high=0.8, n=40)]
    with only_svg():
        draw(rows, [odd], [odd], tmp_path)
    escaped = odd.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    chart, auroc = (tmp_path / f"{name}.svg" for name in ("delta_p", "auroc"))
    assert f"Q-Anchored ({escaped})" in chart.read_text(encoding="utf-8")
    assert auroc.read_text(encoding="utf-8").count(f">{escaped}<") == 1  # the panel's name
    assert read_csv(tmp_path / "delta_p.csv")[0]["dataset"] == odd


def test_the_same_numbers_give_the_same_bytes(rows: list[Statistic], folder: Path, tmp_path: Path):
    # in another process with another hash seed, under settings of the user's own
    script = (
        "import sys, matplotlib\n"
        "matplotlib.rcParams.update({'font.size': 20, 'axes.grid': True, 'svg.hashsalt': None})\n"
        "from pathlib import Path\n"
        "from anchorscope.report.figures import draw\n"
        "from figure_rows import CHARTS, MODELS, SETS, numbers\n"
        "chosen = {name: CHARTS[name] for name in ('delta_p', 'auroc')}\n"
        "draw(numbers(), list(MODELS), SETS, Path(sys.argv[1]), charts=chosen)\n"
        "assert matplotlib.rcParams['font.size'] == 20\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment, check=True, timeout=300)
    assert len(list(tmp_path.iterdir())) == 2 * 5
    for path in tmp_path.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes(), path.name


def test_files_are_fit_for_a_paper(folder: Path):
    for name in CHARTS:
        with Image.open(folder / f"{name}.png") as image:
            assert image.size[0] == 1440  # 7.2 inches at 200 dpi
        svg = (folder / f"{name}.svg").read_text(encoding="utf-8")
        assert "Q-Anchored (PopQA)</text>" in svg or name in ("auroc", "nulls")
        assert "<dc:date>" not in svg
        pdf = (folder / f"{name}.pdf").read_bytes()
        assert b"/FontFile2" in pdf  # TrueType
        assert b"/Type3" not in pdf
        assert b"/CreationDate" not in pdf


def test_a_row_that_would_repeat_another_one_is_left_out(rows: list[Statistic]):
    """The third row of `nulls` compares with refitted probes, which a study may leave out (`refit: []`)."""
    assert len(chart_of("nulls", rows).axes) == 3 * len(MODELS)
    figure = chart_of("nulls", [row for row in rows if row.statistic != "delta_auroc_refit"])
    assert len(figure.axes) == 2 * len(MODELS)
    assert figure.legends[0].get_title().get_text() == "Dotted lines: (a, b) permutation null"


def test_rows_without_numbers_are_left_out_and_the_caption_says_so(rows: list[Statistic], tmp_path: Path):
    some = [row for row in rows if row.condition == "knockout" and row.statistic == "delta_p"]
    with only_svg():
        written = {path.name for path in draw(some, list(MODELS), SETS, tmp_path)}
    assert not any(name.startswith("auroc") for name in written)
    figure = chart_of("delta_p_controlled", some)
    assert len(figure.axes) == 2
    assert not any("dotted" in label for label in words(figure))
    without = [row for row in rows if row.statistic != "auroc_question_only"]
    assert "Not measured in this run: (a) dotted line" in caption("auroc", without, list(MODELS), SETS)
    said = (tmp_path / "delta_p_controlled.txt").read_text(encoding="utf-8")
    assert "Not measured in this run and not shown: “Q minus placebo-Q" in said


def test_the_anchor_layer_is_marked_in_the_sets_colour(rows: list[Statistic]):
    figure = chart_of("delta_p_controlled", rows)
    marks = lines(figure.axes[0])
    for name, look in looks(SETS).items():
        (expected,) = [
            row.value
            for row in rows
            if (row.statistic, row.model, row.dataset) == ("anchor_layer", "Llama-3.2-1B", name)
        ]
        mark = marks[f"anchor layer ({look.name})"]
        assert list(mark.get_xdata()) == [expected]
        assert mark.get_color() == look.q


@pytest.mark.parametrize("name", CHARTS)
def test_a_caption_names_the_bands_and_the_sizes_of_the_groups(name: str, rows: list[Statistic], folder: Path):
    said = caption(name, iter(rows), list(MODELS), SETS)
    assert said == (folder / f"{name}.txt").read_text(encoding="utf-8")
    assert "95 % bootstrap intervals over questions and repeats" in said
    for group, title in (("Q", "Q-Anchored"), ("A", "A-Anchored"), ("all", "all answers")):
        table = [row for row in read_csv(folder / f"{name}.csv") if row["group"] == group and row["value"]]
        sizes = [int(row["n"]) for row in table if row["statistic"] != "anchor_layer"]
        assert not sizes or f"{min(sizes):,} to {max(sizes):,} for {title}" in said


def test_the_longest_of_the_layers_known_is_shown():
    rows = delta_p("m", "nq", [-1.0, -2.0])
    assert chart_of("delta_p", rows, {"m": 40}, ["nq"]).axes[0].get_xlim() == (-0.5, 39.5)


def test_nothing_to_draw_is_an_error_that_says_what_there_is(rows: list[Statistic], tmp_path: Path):
    with pytest.raises(AnchorscopeError, match="mlp at answer_last"):
        draw(rows, list(MODELS), SETS, tmp_path, ReadPoint("mpl", "answer_last"))
    with pytest.raises(AnchorscopeError, match="other models or datasets"):
        draw(rows, ["no such model"], SETS, tmp_path)
    with pytest.raises(AnchorscopeError, match="empty"):
        draw([], list(MODELS), SETS, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_rows_for_one_point_are_refused():
    rows = delta_p("m", "nq", [-1.0])
    with pytest.raises(ValueError, match="two rows of m, nq, layer 0"):
        chart_of("delta_p", rows * 2, {"m": 1}, ["nq"])
