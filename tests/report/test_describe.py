"""The chart in words: every number is one of the table's, and the words change when the numbers do."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from PIL import Image

from anchorscope import Study
from anchorscope.evidence.record import LEDGER, ClaimVerdict
from anchorscope.pathways.lookup import collect
from anchorscope.pathways.record import PATHWAYS, Statistic
from anchorscope.report.charts import CHARTS
from anchorscope.report.draw.lines import draw_chart, style
from anchorscope.report.draw.palette import A_COLOURS, C_COLOURS, MARKERS, Q_COLOURS
from anchorscope.report.figures import draw
from anchorscope.report.text.describe import LONGEST_ALT, alt_text, ledger, page
from anchorscope.report.text.lines import COLOURS, SIGNS, counted, layers, listed
from anchorscope.report.text.panels import DescribedPanel, panels_of
from anchorscope.report.text.summary import truth
from anchorscope.store import Store
from anchorscope.store.table import Plan
from anchorscope.study.terms import MIN_GROUP, ReadPoint
from conftest import Cli, assert_mendable
from figure_rows import MODELS, SETS, number, numbers
from whole import only_svg

POINT = ReadPoint("mlp", "answer_last")
SHOWN = dict(zip(SETS, ("PopQA", "TriviaQA", "HotpotQA", "NQ"), strict=True))
NUMBER = re.compile(r"−?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
# the rules' own sizes, in the only phrases where they may stand
RULES = re.compile(
    r"95 %|±10 points|(?:10 points|0\.1 of AUROC)(?: or (?:10 points|0\.1 of AUROC))? apart"
    r"|at least [05.]+ (?:points|of AUROC)(?: or [05.]+ (?:points|of AUROC))? from|fewer than 30 samples"
)
VALUE = re.compile(r"(first|lowest|highest|last|only value|recovered to|fallen back to)[a-z ]* (−?[\d.]+) "
                   r"\((−?[\d.]+) to (−?[\d.]+)\) at layer (\d+)", re.IGNORECASE)  # fmt: skip


def panels(
    rows: Sequence[Statistic],
    models: dict[str, int] = MODELS,
    datasets: Sequence[str] = SETS,
    name: str = "delta_p",
) -> list[DescribedPanel]:
    found = collect(rows, CHARTS[name].keys, list(models), datasets, POINT)
    with style():
        figure = draw_chart(CHARTS[name], found, list(models), datasets, models)
        return panels_of(CHARTS[name], found, list(models), datasets, figure)


def page_of(
    rows: Sequence[Statistic],
    models: dict[str, int] = MODELS,
    datasets: Sequence[str] = SETS,
    name: str = "delta_p",
    verdicts: Sequence[ClaimVerdict] | None = None,
) -> str:
    return page(CHARTS[name], panels(rows, models, datasets, name), POINT, verdicts)


def alt_of(
    rows: Sequence[Statistic],
    models: dict[str, int] = MODELS,
    datasets: Sequence[str] = SETS,
    name: str = "delta_p",
) -> str:
    return alt_text(CHARTS[name], panels(rows, models, datasets, name))


def line(
    dataset: str,
    values: Sequence[float | None],
    group: str = "Q",
    model: str = "m",
    width: float = 2.0,
    band: float = 0,
) -> list[Statistic]:
    """One line of the published chart; its intervals reach `width` up and down, its bands `band` if that is not 0."""
    rows = []
    for layer, v in enumerate(values):
        few = v is None
        ends = {} if few else {"value": v, "low": v - width, "high": v + width}
        ends |= {} if few or not band else {"band_low": v - band, "band_high": v + band}
        what = {"model": model, "dataset": dataset, "group": group, "split": "layer"}
        rows.append(number(layer=layer, n=12 if few else 50 + layer, **ends, **what))
    return rows


FLAT = [-2.0, -3.0, -1.0, -2.0, -3.0, -2.0, -1.0, -2.0]
VALLEY = [-10.0, -20.0, -40.0, -55.0, -50.0, -40.0, -30.0, -25.0]
UPPER = [-9.0, -18.0, -33.0, -41.0, -37.0, -31.0, -24.0, -20.0]


def small(**lines: Sequence[float | None]) -> list[Statistic]:
    """A chart of one model with 8 layers and two sets: what is not given is a valley, or flat near zero."""
    given = {"q_popqa": VALLEY, "q_nq": UPPER, "a_popqa": FLAT, "a_nq": [-4.0] * 8, **lines}
    return [row for name, values in given.items() for row in line(name[2:], values, name[0].upper())]


def of_small(**lines: Sequence[float | None]) -> str:
    return page_of(small(**lines), {"m": 8}, ["popqa", "nq"])


def bullet(text: str, start: str, nth: int = 0) -> str:
    """The bullet that starts so; of several, the nth: 1 is behind that of the legend."""
    return [each for each in text.splitlines() if each.startswith(f"- {start}")][nth]


@pytest.fixture(scope="module")
def rows() -> list[Statistic]:
    return list(numbers())


# --- every number is one of the table's


def written(value: float, decimals: int) -> str:
    text = f"{abs(value):.{decimals}f}"
    return f"−{text}" if value < 0 and float(text) else text


def ticks(axes: Axes) -> set[str]:
    shown = set()
    for marks, (low, high) in ((axes.get_xticks(), axes.get_xlim()), (axes.get_yticks(), axes.get_ylim())):
        shown |= {f"{mark:g}".replace("-", "−") for mark in (round(m, 6) for m in marks) if low <= mark <= high}
    return shown


def known_numbers(name: str, rows: Sequence[Statistic], drawn: Sequence[DescribedPanel]) -> set[str]:
    known = set()
    for row in rows:
        if row.key not in CHARTS[name].keys or row.site != "mlp":
            continue
        known |= {str(row.layer), f"{row.n:,}"}
        places = (1,) if row.statistic in ("delta_p", "anchor_layer") else (3,)
        values = [each for each in (row.value, row.low, row.high) if each is not None]
        known |= {written(value, decimals) for value in values for decimals in places}
    for panel in drawn:
        known |= ticks(panel.axes) | {str(MODELS[panel.model] - 1), f"{panel.row.level:g}"}
        known |= {written(end, decimals) for end in panel.axes.get_ylim() for decimals in (0, 2)}
    return known


@pytest.mark.parametrize("name", CHARTS)
def test_every_number_of_the_words_is_one_of_the_tables(name: str, rows: list[Statistic]):
    drawn = panels(rows, name=name)
    known = known_numbers(name, rows, drawn)
    for text in (page(CHARTS[name], drawn, POINT), alt_text(CHARTS[name], drawn)):
        said = RULES.sub("", text.replace(CHARTS[name].caption, ""))
        for model in MODELS:
            said = said.replace(model, "")
        found = NUMBER.findall(said)
        assert len(found) > 25
        assert [each for each in found if each not in known] == []


def test_the_check_of_numbers_can_fail(rows: list[Statistic]):
    drawn = panels(rows)
    known = known_numbers("delta_p", rows, drawn)
    moved = [dataclasses.replace(row, value=row.value and row.value + 7.77) for row in rows]
    assert not set(NUMBER.findall(page_of(moved))) <= known | set("0123456789")


@pytest.mark.parametrize("name", CHARTS)
def test_each_value_stands_with_its_layer_and_interval(name: str, rows: list[Statistic]):
    """The line-by-line sentences, read back: value, interval and layer are those of one row of that very line."""
    checked = 0
    for panel in panels(rows, name=name):
        for bundle in panel.bundles:
            for each in bundle:
                decimals = 1 if panel.row.least >= 1 else 3
                by_layer = {row.layer: row for row in each.rows}
                with_value = [row for row in each.rows if row.value is not None]
                for role, *said, layer in VALUE.findall(each.sentences()):
                    row = by_layer[int(layer)]
                    assert said == [written(v, decimals) for v in (row.value, row.low, row.high)]
                    values = [row.value for row in with_value]
                    expected = {"lowest": min(values), "highest": max(values), "first": values[0], "last": values[-1]}
                    assert row.value == expected.get(role.lower(), row.value)
                    checked += 1
    assert checked > 40


PLACED = re.compile(r"(\w+) (−?[\d.]+) \((\w+), layer (\d+)\)")
OF_MODEL = re.compile(r"(Llama-3\.2-\dB) (−?[\d.]+) \((−?[\d.]+) to (−?[\d.]+)\) at layer (\d+) of (\d+)")
STEP = re.compile(r"(\w)-Anchored \((\w+)\), from (−?[\d.]+) at layer (\d+) to (−?[\d.]+) at layer (\d+)\.")


def test_what_is_said_of_several_lines_stands_with_its_set_and_layer(rows: list[Statistic]):
    published = [row for row in rows if row.key in CHARTS["delta_p"].keys and row.site == "mlp"]
    table = {(row.model, SHOWN[row.dataset], row.group, row.layer): row for row in published}
    parts = re.split(r"^##+ ", page_of(rows), flags=re.MULTILINE)
    for model in MODELS:
        (common,) = [part for part in parts if part.startswith(f"What the lines of {model}")]
        assert len(PLACED.findall(common)) >= 4  # lowest and highest of the troughs, and of the A lines
        for said in common.splitlines():
            for word, value, dataset, layer in PLACED.findall(said):
                row = table[model, dataset, said[2], int(layer)]
                assert value in [written(v, 1) for v in ((row.low, row.high) if word == "reach" else (row.value,))]
        ((group, dataset, before, one, after, two),) = STEP.findall(common)
        values = [table[model, dataset, group, int(layer)].value for layer in (one, two)]
        assert [before, after] == [written(value, 1) for value in values]
        steps = [
            abs(row.value - below.value)
            for (_, name, g, layer), row in table.items()
            if row.model == model and (below := table.get((model, name, g, layer - 1)))
            if row.value is not None and below.value is not None
        ]
        assert abs(values[1] - values[0]) == max(steps)
    (differences,) = [part for part in parts if part.startswith("What differs")]
    assert len(OF_MODEL.findall(differences)) == len(MODELS) * len(SETS)
    for said in differences.splitlines():
        for model, *ends, layer, last in OF_MODEL.findall(said):
            row = table[model, re.findall(r"\((\w+)\)", said)[0], "Q", int(layer)]
            assert ends == [written(v, 1) for v in (row.value, row.low, row.high)]
            assert int(last) == MODELS[model] - 1
            line_of = [r for r in published if (r.model, r.dataset, r.group) == (model, row.dataset, "Q")]
            assert row.value == min(r.value for r in line_of if r.value is not None)


# --- the words follow the numbers


def test_the_layer_of_the_trough_moves_with_it():
    moved = [*VALLEY[:3], -45.0, -45.0, -56.0, *VALLEY[6:]]
    before, after = of_small(), of_small(q_popqa=moved)
    assert "lowest −55.0 (−57.0 to −53.0) at layer 3" in bullet(before, "Q-Anchored (PopQA)", 1)
    assert "lowest −56.0 (−58.0 to −54.0) at layer 5" in bullet(after, "Q-Anchored (PopQA)", 1)
    common = bullet(before, "Q-Anchored lines:")
    assert "lowest values between −55.0 (PopQA, layer 3) and −41.0 (NQ, layer 3), at layer 3;" in common
    assert "at layers 3 and 5;" in bullet(after, "Q-Anchored lines:")


SHAPES = {
    "falls and recovers by more than half": VALLEY,
    "falls and recovers by less than half": [-10.0, -30.0, -55.0, -50.0, -45.0, -45.0, -44.0, -43.0],
    "falls and recovers fully": [-10.0, -30.0, -55.0, -50.0, -40.0, -30.0, -20.0, -12.0],
    "falls and recovers beyond its first value": [-20.0, -30.0, -55.0, -50.0, -40.0, -30.0, -20.0, -5.0],
    "falls, recovers by more than half and falls again": [-5.0, -30.0, -55.0, -50.0, -20.0, -25.0, -40.0, -50.0],
    "falls and stays low": [-10.0, -30.0, -55.0, -54.0, -53.0, -54.0, -53.0, -52.0],
    "falls": [-10.0, -20.0, -30.0, -40.0, -50.0, -60.0, -70.0, -80.0],
    "rises": [-80.0, -70.0, -60.0, -50.0, -40.0, -30.0, -20.0, -10.0],
    "rises and stays high": [-80.0, -70.0, -20.0, -21.0, -20.5, -21.0, -22.0, -21.0],
    "rises and falls back fully": [0.0, 5.0, 12.0, 20.0, 15.0, 10.0, 5.0, 1.0],
    "rises, falls back fully and rises again": [0.0, 10.0, 20.0, 10.0, 0.0, 5.0, 10.0, 15.0],
    "flat": FLAT,
}


@pytest.mark.parametrize("words", SHAPES)
def test_the_shape_of_a_line_is_said(words: str):
    text = of_small(q_popqa=SHAPES[words])
    assert bullet(text, "Q-Anchored (PopQA)", 1).startswith(f"- Q-Anchored (PopQA): {words}. ")
    assert f"{words} (PopQA" in bullet(text, "Shape of the Q-Anchored lines")


def test_a_turn_is_told_with_its_layer():
    said = bullet(
        of_small(q_popqa=SHAPES["falls, recovers by more than half and falls again"]), "Q-Anchored (PopQA)", 1
    )
    assert "lowest −55.0 (−57.0 to −53.0) at layer 2; recovered to −20.0 (−22.0 to −18.0) at layer 4; last" in said


def test_a_dip_that_loses_less_than_half_is_no_second_fall():
    dip = [-5.0, -30.0, -55.0, -50.0, -25.0, -30.0, -35.0, -38.0]
    assert "Q-Anchored (PopQA): falls and recovers by less than half. First" in of_small(q_popqa=dip)
    assert "Q-Anchored (PopQA): falls, recovers by more than half and falls again." in of_small(
        q_popqa=[*dip[:7], -41.0]
    )


def test_a_move_within_the_bands_is_not_called_clear():
    wide = [*line("nq", VALLEY, width=25), *line("nq", FLAT, "A")]
    assert "; not clear: fall and recovery." in page_of(wide, {"m": 8}, ["nq"])
    some = [*line("nq", VALLEY, width=16), *line("nq", FLAT, "A")]
    assert "falls and recovers by more than half; not clear: recovery." in page_of(some, {"m": 8}, ["nq"])
    # bands for all layers at once decide where there are some, not the intervals that are drawn
    banded = page_of([*line("nq", VALLEY, width=2, band=25), *line("nq", FLAT, "A")], {"m": 8}, ["nq"])
    assert "; not clear: fall and recovery. First and highest −10.0 (−12.0 to −8.0)" in banded
    assert "bands that hold for all layers at once" in banded
    assert "bands that hold for all layers at once" not in page_of(some, {"m": 8}, ["nq"])


def test_an_a_line_that_leaves_zero_is_named():
    before, after = of_small(), of_small(a_popqa=[*FLAT[:4], -30.0, -28.0, *FLAT[6:]])
    assert "all values lie between −4.0 (NQ, layer 0) and −1.0 (PopQA, layer 2)" in bullet(before, "A-Anchored lines:")
    assert "They stay within ±10 points of zero at every layer, and so do their intervals." in before
    assert "Not all are within ±10 points of zero. Farther away are PopQA at layers 4 and 5." in after
    assert "stay within" not in after
    alts = [alt_of(small(**more), {"m": 8}, ["popqa", "nq"]) for more in ({}, {"a_popqa": [-2.0] * 7 + [-30.0]})]
    assert ", within ±10 points of zero" in alts[0]
    assert (
        "A-Anchored lines lie between −30.0 (PopQA, layer 7) and −2.0 (PopQA, layer 0), not all within ±10" in alts[1]
    )


def test_intervals_beyond_ten_points_are_told_apart_from_values():
    text = of_small(a_popqa=[*FLAT[:4], -9.0, *FLAT[5:]])
    assert "within ±10 points of zero at every layer, but their intervals reach −11.0 (PopQA, layer 4)." in text


def test_the_order_of_the_sets_follows_the_lines():
    said = "Datasets in order of their lowest value, lowest first: {}. Clearly apart: {}. In order at layer 7: {}."
    expected = said.format("PopQA (−55.0), NQ (−41.0)", "PopQA below NQ", "PopQA, NQ")
    assert expected in of_small()
    expected = said.format("NQ (−55.0), PopQA (−41.0)", "NQ below PopQA", "NQ, PopQA")
    assert expected in of_small(q_popqa=UPPER, q_nq=VALLEY)
    assert "Clearly apart: no two datasets." in of_small(
        q_popqa=[-54.0 if v == -55 else v for v in VALLEY], q_nq=VALLEY
    )


def test_where_the_q_lines_leave_the_a_lines():
    assert "Every Q-Anchored line lies below every A-Anchored line, at every layer where both" in of_small()
    crossing = [-1.0, -2.0, *UPPER[2:]]
    expected = "From layer 2 on, every Q-Anchored line lies below every A-Anchored line, but not at layers 0 and 1."
    assert expected in of_small(q_nq=crossing)
    assert "At layer 7, not every Q-Anchored line lies below" in of_small(q_nq=[*UPPER[:7], 3.0])


def test_jumps_and_wide_intervals_are_told():
    text = page_of([*small(), *line("hotpotqa", VALLEY, width=9)], {"m": 8}, ["popqa", "nq", "hotpotqa"])
    assert "next: Q-Anchored (PopQA), from −20.0 at layer 1 to −40.0 at layer 2." in text
    assert "The widest interval: Q-Anchored (HotpotQA) at layer " in text
    assert "- A-Anchored (HotpotQA): not measured in this run." in text


# --- panels


def pair(second: Sequence[float], layers_of: int = 8) -> str:
    rows = [*line("nq", VALLEY), *line("nq", FLAT, "A"), *line("nq", second, model="n")]
    rows += line("nq", [-1.0] * len(second), "A", "n")
    return page_of(rows, {"m": 8, "n": layers_of}, ["nq"])


def test_what_differs_between_panels():
    text = pair([-10.0, -20.0, -80.0, -70.0, -60.0, -50.0, -45.0, -44.0])
    assert "The lowest values of the Q-Anchored lines are lowest in n on NQ; the difference is clear on NQ." in text
    assert "- Relative depth of these values (layer divided by last layer): earliest in n on NQ." in text
    assert "n −80.0 (−82.0 to −78.0) at layer 2 of 7 (falls and recovers by more than half); m −55.0" in text
    assert "A-Anchored lines stay within ±10 points of zero in m and n." in text
    text = pair([-10.0, -20.0, -30.0, -52.0, -52.0, -51.0, -51.5, -51.0])
    assert "lines are lowest in m on NQ; the difference is clear on no dataset." in text
    assert "(layer divided by last layer): about the same on NQ." in text
    assert "n −52.0 (−54.0 to −50.0) at layer 3 of 7 (falls and stays low)." in text


def test_relative_depth_goes_by_the_models_own_layers():
    longer = [value for value in VALLEY for _ in (0, 1)]  # the same valley in 16 layers
    text = pair(longer, 16)
    assert "at layer 3 of 7" in text
    assert "at layer 6 of 15" in text
    assert "about the same on NQ" in text


def test_one_model_is_compared_with_nothing():
    text = of_small()
    assert "A line chart with one panel, of one model: m. A panel has four lines" in text
    assert "What differs between the panels" not in text
    assert "ΔAUROC" not in text


def test_panels_axes_and_legend_are_those_drawn(rows: list[Statistic]):
    drawn, text = panels(rows), page_of(rows)
    assert "A line chart with two panels, one per model: Llama-3.2-1B and Llama-3.2-3B. A panel has eight lines" in text
    assert "- Models from left to right: Llama-3.2-1B, Llama-3.2-3B." in text
    for panel in drawn:
        labels = panel.axes.get_xticklabels()
        inside = [label.get_text() for label in labels if 0 <= label.get_position()[0] <= panel.top]
        assert f"The x axis of {panel.model} is the layer, from 0 to {panel.top}, labelled at {listed(inside)}." in text
    low, high = drawn[0].axes.get_ylim()
    marks = [f"{mark:g}".replace("-", "−") for mark in drawn[0].axes.get_yticks() if low <= mark <= high]
    assert (
        f"from {written(low, 0)} to {written(high, 0)}, labelled at {listed(marks)}. A thin horizontal line at 0"
        in text
    )
    for start, look in (
        ("Q-Anchored (PopQA)", "solid blue line, circles"),
        ("Q-Anchored (TriviaQA)", "solid green line, squares"),
        ("Q-Anchored (HotpotQA)", "solid purple line, triangles"),
        ("Q-Anchored (NQ)", "solid pink line, diamonds"),
        ("A-Anchored (PopQA)", "dashed orange line, hollow circles"),
        ("A-Anchored (TriviaQA)", "dashed red line, hollow squares"),
        ("A-Anchored (HotpotQA)", "dashed brown line, hollow triangles"),
        ("A-Anchored (NQ)", "dashed gray line, hollow diamonds"),
    ):
        assert bullet(text, start) == f"- {start}: {look}."


def test_sections_come_in_the_order_of_looking(rows: list[Statistic]):
    heads = [each for each in page_of(rows).splitlines() if each.startswith("#")]
    assert heads == [
        "# The chart delta_p in words",
        "## Overview",
        "## Panels and axes",
        "## Panel Llama-3.2-1B",
        "### What the lines of Llama-3.2-1B have in common",
        "## Panel Llama-3.2-3B",
        "### What the lines of Llama-3.2-3B have in common",
        "## What differs between the panels",
        "## What the ledger says",
    ]


def test_a_chart_of_several_rows_names_them(rows: list[Statistic]):
    text = page_of(rows, name="auroc")
    assert "six panels, three rows, one per model in each: Llama-3.2-1B and Llama-3.2-3B" in text
    assert "## Panel (a) Llama-3.2-1B\n\nHow well the probe ranks right above wrong answers" in text
    assert "highest in" in text  # of AUROC, not lowest
    assert "A thin horizontal line at 0.5 marks chance." in text
    assert "Ticks on the x axis mark the mean anchor layer: PopQA 8.8" in page_of(rows, name="delta_p_controlled")


# --- what is not there


def test_too_few_samples_are_told():
    few: list[float | None] = [None] * 8
    text = of_small(q_nq=few)
    assert bullet(text, "Q-Anchored (NQ)", 1) == "- Q-Anchored (NQ): no line, too few samples (at most 12)."
    assert "A panel has three lines" in text
    assert "too few samples for a line: Q-Anchored (NQ)" in alt_of(small(q_nq=few), {"m": 8}, ["popqa", "nq"])
    gaps = of_small(q_nq=[None, None, -20.0, None, *UPPER[4:]])
    assert "Too few samples for a value at layers 0, 1 and 3." in bullet(gaps, "Q-Anchored (NQ)", 1)
    assert "First and highest −20.0 (−22.0 to −18.0) at layer 2;" in bullet(gaps, "Q-Anchored (NQ)", 1)
    assert "Too few samples for a value" not in of_small()
    nothing = of_small(q_nq=few, q_popqa=few, a_nq=few, a_popqa=few)
    assert "A panel has no lines" in nothing
    single = of_small(q_nq=[None, None, -20.0, *few[3:]])
    assert "Q-Anchored (NQ): a single point. Only value −20.0 (−22.0 to −18.0) at layer 2." in single


def test_a_value_that_is_undefined_is_not_called_too_few():
    undefined = [dataclasses.replace(row, n=80) if row.value is None else row for row in small(q_nq=[None, *UPPER[1:]])]
    said = bullet(page_of(undefined, {"m": 8}, ["popqa", "nq"]), "Q-Anchored (NQ)", 1)
    assert said.endswith(" No value at layer 0.")


def test_a_model_without_rows_says_so():
    text = page_of(small(), {"m": 8, "n": 1}, ["popqa", "nq"])
    assert "- n: no Q-Anchored lines; no A-Anchored lines." in text
    assert "A panel has no to four lines" in text
    assert text.count("A-Anchored lines stay within ±10 points of zero in m.") == 1
    assert "the difference is clear" not in text


# --- the ledger


def verdict(claim: str, model: str, dataset: str, answer: str) -> ClaimVerdict:
    return ClaimVerdict(
        claim=claim, model=model, dataset=dataset, statement=f"The {claim} is there.", statistic="s", control="c",
        threshold=0.0, side="below", value=-1.0, low=-2.0, high=0.5, p=0.01, verdict=answer, n=90,
    )  # fmt: skip


VERDICTS = [
    verdict("fall", "m", "popqa", "holds"),
    verdict("fall", "m", "nq", "holds"),
    verdict("fall", "m", "hotpotqa", "cannot tell"),
    verdict("gap", "m", "all", "does not hold"),
    verdict("gap", "n", "nq", "cannot tell"),
    verdict("depth", "m < n", "nq", "holds"),
]


def test_the_ledger_is_summed_up_over_sets():
    text = page_of(small(), {"m": 8}, ["popqa", "nq"], verdicts=VERDICTS)
    assert "In all, six verdicts: 3 *holds*, 1 *does not hold* and 2 *cannot tell*." in text
    assert "- m, four verdicts: 2 *holds*, 1 *does not hold* and 1 *cannot tell*." in text
    claim = "Claim: The fall is there.\n\n- m: holds on PopQA and NQ; cannot tell on HotpotQA.\n"
    assert claim in text
    assert "- m: does not hold on all datasets together.\n- n: cannot tell on NQ." in text
    assert "- m (smaller) and n (larger): holds on NQ." in text
    swapped = [
        dataclasses.replace(each, verdict="does not hold") if each.dataset == "popqa" else each for each in VERDICTS
    ]
    assert "- m: holds on NQ; does not hold on PopQA; cannot tell on HotpotQA." in "\n".join(ledger(swapped))


def test_without_a_ledger_nothing_is_claimed():
    text = of_small()
    assert text.endswith(
        "## What the ledger says\n\nThis run has no ledger of claims yet. "
        "The command `anchorscope claims RUN` makes it.\n"
    )
    assert "hold on" not in text
    assert "verdicts" not in text


# --- alt text, and the files that carry it


@pytest.mark.parametrize("name", CHARTS)
def test_alt_text_is_one_short_paragraph(name: str, rows: list[Statistic]):
    text = alt_of(rows, name=name)
    assert 300 < len(text) <= LONGEST_ALT
    assert "\n" not in text
    assert not re.search(r"[*#`]|  ", text)
    for model in MODELS:
        assert model in text


def test_alt_text_stays_short_for_many_models_and_long_names():
    models = {f"model-{'long-' * 15}{i}": 4 for i in range(9)}
    sets = [f"set-{'long-' * 10}{i}" for i in range(9)]
    rows = [row for m in models for s in sets for g in "QA" for row in line(s, [-1.0, -20.0, -9.0, -30.0], g, m)]
    text = alt_of(rows, models, sets)
    assert len(text) <= LONGEST_ALT
    assert "and 4 more" in text
    assert "further panel" in text
    assert text.endswith("part of the gap between them holds by definition.")


@pytest.mark.parametrize("name", CHARTS)
def test_files_carry_the_alt_text(name: str, rows: list[Statistic], figures: Path):
    folder, expected = figures, alt_of(rows, name=name)
    root = ET.parse(folder / f"{name}.svg").getroot()
    first = next(iter(root))
    assert (first.tag, first.text) == ("{http://www.w3.org/2000/svg}desc", expected)
    assert root.get("role") == "img"
    assert root.get("aria-describedby") == first.get("id")
    assert expected.startswith(root.get("aria-label", "nothing"))
    with Image.open(folder / f"{name}.png") as image:
        assert image.info["Description"] == expected
    pdf = (folder / f"{name}.pdf").read_bytes()
    subject = re.search(rb"/Subject \((.*?)(?<!\\)\)", pdf, re.DOTALL)
    assert subject, "the PDF has no subject"
    assert unescaped(subject[1]).decode("utf-16") == expected


def unescaped(text: bytes) -> bytes:
    """A string of a PDF as its bytes."""
    names = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
    return re.sub(rb"\\(.)", lambda found: names.get(found[1], found[1]), text, flags=re.DOTALL)


def test_odd_names_do_not_break_the_files(tmp_path: Path):
    odd = 'a<b> & "c" \\ (d) ]]> \x1b[1m'
    rows = [*line(odd, VALLEY, model=odd), *line(odd, FLAT, "A", model=odd)]
    with only_svg():
        draw(rows, [odd], [odd], tmp_path)
    description = next(iter(ET.parse(tmp_path / "delta_p.svg").getroot())).text or ""
    assert 'a<b> & "c" \\ (d) ]]> \\x1b[1m' in description
    assert description == alt_of(rows, {odd: 8}, [odd])


# --- the command


@pytest.fixture
def run(tmp_path: Path, make_study: Callable[..., Study]) -> Path:
    """A run that has the table behind the chart, and nothing else."""
    root, study = tmp_path / "runs" / "s", make_study()
    rows = [*line("numbers", VALLEY, model="model"), *line("numbers", FLAT, "A", model="model")]
    with Store.writing(root, study) as store:
        kind = PATHWAYS.at(POINT)
        store.results("model", "numbers").begin(kind, Plan(len(rows), len(rows)), {}, {}).write(0, rows)
    return root


def test_the_command_prints_the_page_or_the_alt_text(cli: Cli, run: Path):
    done = cli("describe", str(run))
    assert done.returncode == 0, done.stderr
    rows = [*line("numbers", VALLEY, model="model"), *line("numbers", FLAT, "A", model="model")]
    assert done.stdout == page_of(rows, {"model": 8}, ["numbers"])
    assert cli("describe", str(run), "--alt").stdout == alt_of(rows, {"model": 8}, ["numbers"]) + "\n"
    (run / LEDGER).write_text(json.dumps({"models": {}, "verdicts": [dataclasses.asdict(each) for each in VERDICTS]}))
    assert "holds on PopQA and NQ" in cli("describe", str(run), "--at", "mlp-answer_last").stdout
    (run / LEDGER).write_text('{"verdicts": [{}]}')
    assert_mendable(cli("describe", str(run)), "damaged", "anchorscope claims")


def test_what_the_command_cannot_describe_is_said(cli: Cli, run: Path):
    assert_mendable(cli("describe", str(run), "--chart", "delta"), "there is no chart 'delta'")
    assert_mendable(cli("describe", str(run), "--chart", "auroc"), "nothing to draw")
    assert_mendable(cli("describe", str(run), "--at", "mlp-final"), "this run has no read point 'mlp-final'")


# --- small words


def test_lists_counts_and_layers_are_written_for_people():
    assert [listed(each) for each in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
    assert [counted(n, "line") for n in (0, 1, 2, 12, 13)] == [
        "no lines",
        "one line",
        "two lines",
        "twelve lines",
        "13 lines",
    ]
    assert [layers(each) for each in ([3], [0, 1], [4, 3, 1, 0, 2, 9])] == [
        "layer 3",
        "layers 0 and 1",
        "layers 0 to 4 and 9",
    ]


def test_every_look_has_a_name():
    assert set(COLOURS) == {*Q_COLOURS, *A_COLOURS, *C_COLOURS}
    assert set(SIGNS) == set(MARKERS)
    assert len({*COLOURS.values()}) == len(COLOURS)
    assert len({*SIGNS.values()}) == len(SIGNS)
    assert MIN_GROUP == MIN_GROUP


def test_the_ledger_leads_with_claims_that_separate_truth_from_difficulty():
    first = dataclasses.replace(verdict("truth", "m", "nq", "holds"), separates_truth_from_difficulty=True)
    text = "\n".join(ledger([*VERDICTS, first]))
    yes, no = (text.index(f"Separates truth from difficulty: {answer}") for answer in ("yes", "no"))
    assert yes < text.index("The truth is there") < no < text.index("The fall is there")


def test_what_holds_within_a_question_is_counted():
    rows = [
        dataclasses.replace(verdict("within_signal", model, dataset, answer), separates_truth_from_difficulty=True)
        for model, dataset, answer in (("m", "nq", "holds"), ("m", "popqa", "holds"), ("n", "nq", "cannot tell"))
    ]
    assert truth(rows) == (
        "Among several answers to one question, where the question's difficulty cannot help, the probe ranks right "
        "answers above wrong ones in 2 of 3 model–set pairs (cannot tell in 1)."
    )
    assert truth([]) == ""
