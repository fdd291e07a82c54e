"""The first picture says what the tables beside it say."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import pytest
from first_figure import KEYS, found, lines_in, title, typical
from redraw import statistics_of

FOLDER = Path(__file__).parents[2] / "results" / "small-models"


def half_way() -> dict[tuple[str, str], dict[tuple[str, str], float]]:
    """ΔP of Q and A at the middle layer, from the table that the pages show, by condition and group."""
    with (FOLDER / "half.csv").open(encoding="utf-8", newline="") as stream:
        values: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
        for row in csv.DictReader(stream):
            if (row["statistic"], row["split"], row["anchor"], row["stratum"], row["correction"]) == (
                *("delta_p", "anchor_half", "half", "all", "none"),
            ):
                cell = values.setdefault((row["model"], row["dataset"]), {})
                if row["value"]:
                    cell[row["condition"], row["group"]] = float(row["value"])
        return values


def test_the_lines_are_those_of_the_pages_at_the_middle_layer():
    expected, lines = half_way(), lines_in(statistics_of(FOLDER / "first.csv"))
    assert set(lines) == set(expected)
    for pair, own in lines.items():
        assert set(own) == set(KEYS)
        values = expected[pair]
        said = found(own)
        assert said.fall == pytest.approx(values["knockout", "Q"], abs=0.006)
        assert said.null == pytest.approx(values["permuted", "Q"], abs=0.006)
        assert said.gap == pytest.approx(values["knockout", "Q"] - values["knockout", "A"], abs=0.011)


def test_the_pair_is_the_one_nearest_to_the_mean_and_the_title_says_its_numbers():
    values, lines = half_way(), lines_in(statistics_of(FOLDER / "first.csv"))
    gaps = {pair: own["knockout", "Q-A"] for pair, own in values.items()}
    mean = sum(gaps.values()) / len(gaps)
    nearest = sorted(gaps, key=lambda pair: abs(gaps[pair] - mean))[0]
    assert typical(lines) == nearest
    for condition in ("knockout", "permuted"):
        assert f" {-values[nearest][condition, 'Q']:.0f}" in title(lines[nearest])


def test_the_picture_belongs_to_its_table():
    digest = hashlib.sha256((FOLDER / "first.csv").read_bytes()).hexdigest()
    assert f"tEXtTable\0{digest}".encode() in (FOLDER / "first.png").read_bytes(), "run: make results"
