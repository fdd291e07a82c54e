"""The charts for a page: the same numbers that draw/lines.py draws, and those behind every switch of the page.

The page gets the declaration of each chart (charts.py) with its rows, curves and words, and all numbers as columns. So
paper and screen show the same lines, and the switches of the page choose among numbers that the table has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.evidence.tables import SWITCHES
from anchorscope.pathways.chart import Chart
from anchorscope.pathways.lookup import read_lines
from anchorscope.pathways.record import NUMBERS, Key
from anchorscope.report.charts import OVERVIEW, TABS
from anchorscope.report.draw.palette import MARKERS, looks
from anchorscope.report.page.pack import Pack, whole
from anchorscope.report.page.runs import PageRuns
from anchorscope.report.text.caption import POSITIONS, SITES
from anchorscope.report.text.summary import KEYS as SENTENCES
from anchorscope.study.terms import ReadPoint

POINTS = 100.0  # ΔP is kept to a hundredth of a point
SHARES = 10_000.0  # AUROC and its like to a ten thousandth


class PageCurve(NamedTuple):
    """The numbers of one key, layer by layer."""

    point: int
    model: int
    dataset: int
    key: Key
    """What it measures."""
    first: int
    """The lowest layer; -1 where it belongs to none."""
    numbers: NDArray[np.float64]
    """(value, low, high, n; layer)"""


def read_curves(runs: PageRuns) -> list[PageCurve]:
    """Every curve that the page has a use for and that has a value."""
    keys = {*SWITCHES, *SENTENCES.values(), *(key for chart in runs.charts for key in chart.keys)}
    curves = []
    for at, point in enumerate(runs.points):
        for number, model in enumerate(runs.models):
            for place, dataset in enumerate(runs.datasets):
                if model.cell(dataset).entry(NUMBERS.at(point)) is not None:
                    for key, line in read_lines(model.cell(dataset), point, replicates=False).items():
                        if key in keys and np.isfinite(line.numbers[0]).any():
                            numbers = np.vstack([line.numbers[:3], line.sizes])
                            curves.append(PageCurve(at, number, place, key, 0 if line.by_layer else -1, numbers))
    return curves


def pack_curves(pack: Pack, curves: Sequence[PageCurve]) -> dict[str, Any]:
    """Put all numbers of the charts into the pack; what the page needs to find them."""
    keys = list(dict.fromkeys(curve.key for curve in curves))
    places = {key: place for place, key in enumerate(keys)}
    sizes = np.array([curve.numbers.shape[1] for curve in curves], np.uint32)
    numbers = np.concatenate([whole(curve.numbers[:3], scale_of(curve.key)) for curve in curves], axis=1)
    behind = np.minimum(np.concatenate([curve.numbers[3] for curve in curves]), 65535)
    return {
        "keys": ["|".join(key) for key in keys],
        "scales": [scale_of(key) for key in keys],
        "point": pack.add(np.array([curve.point for curve in curves], np.uint8)),
        "model": pack.add(np.array([curve.model for curve in curves], np.uint8)),
        "set": pack.add(np.array([curve.dataset for curve in curves], np.uint8)),
        "key": pack.add(np.array([places[curve.key] for curve in curves], np.uint16)),
        "first": pack.add(np.array([curve.first for curve in curves], np.int16)),
        "start": pack.add(np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32)),
        "numbers": [*(pack.add(row) for row in numbers), pack.add(behind.astype(np.uint16))],
    }


def scale_of(key: Key) -> float:
    """By which a number of this key is multiplied where it is kept as a whole one."""
    return POINTS if key.statistic in ("delta_p", "anchor_layer") else SHARES


def tabs_for_page(charts: Sequence[Chart]) -> list[tuple[str, str]]:
    """The parts of the report that charts stand in, beside the first: names and titles."""
    names = dict.fromkeys(chart.tab for chart in charts if chart.tab != OVERVIEW)
    order = sorted(names, key=lambda name: list(TABS).index(name) if name in TABS else len(TABS))
    return [(name, TABS.get(name, name.replace("_", " ").capitalize())) for name in order]


def chart_for_page(chart: Chart) -> dict[str, Any]:
    """A chart as the page draws it."""
    return {
        "name": chart.name,
        "title": chart.title,
        "tab": chart.tab,
        "caption": chart.caption,
        "rows": [
            {
                "title": row.title,
                "caption": row.caption,
                "label": row.label,
                "least": row.least,
                "level": row.level,
                "ticks": "|".join(row.ticks) if row.ticks else "",
                "curves": [
                    {"key": "|".join(curve.key), "kind": curve.kind, "style": curve.style, "band": curve.band}
                    for curve in row.curves
                ],
            }
            for row in chart.rows
        ],
    }


def looks_for_page(datasets: Sequence[str]) -> list[dict[str, Any]]:
    look = looks(datasets)
    signs = dict(zip(MARKERS, SIGNS, strict=True))
    return [
        {
            "name": name,
            "title": look[name].name,
            "q": look[name].q,
            "a": look[name].a,
            "c": look[name].c,
            "sign": signs[look[name].marker],
        }
        for name in datasets
    ]


SIGNS = (
    "circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "triangle-left", "triangle-right",
    "pentagon", "hexagon",
)  # fmt: skip
"""The signs of palette.py as the page's pen calls them."""


def points_for_page(points: Sequence[ReadPoint]) -> list[dict[str, str]]:
    return [
        {"site": p.site, "position": p.position, "words": f"{SITES[p.site]} at {POSITIONS[p.position]}"} for p in points
    ]
