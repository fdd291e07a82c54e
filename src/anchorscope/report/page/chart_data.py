"""The charts for a page: the same numbers that draw/lines.py draws, and those behind every switch of the page.

The page gets the declaration of each chart (charts.py) with its rows, curves and words, and all numbers as columns. So
paper and screen show the same lines, and the switches of the page choose among numbers that the table has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.errors import StoreError
from anchorscope.evidence.tables import SWITCHES
from anchorscope.pathways.chart import Chart
from anchorscope.pathways.lookup import measured, read_lines
from anchorscope.pathways.record import Key
from anchorscope.report.charts import OVERVIEW, TABS, charts_of
from anchorscope.report.draw.palette import MARKERS, looks
from anchorscope.report.page.pack import Pack, whole
from anchorscope.report.text.caption import POSITIONS, SITES
from anchorscope.report.text.summary import KEYS as SENTENCES
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint

POINTS = 100.0  # ΔP is kept to a hundredth of a point
SHARES = 10_000.0  # AUROC and its like to a ten thousandth


class PageModel(NamedTuple):
    """One model of one run, as the page calls it."""

    store: Store
    """The run."""
    run: int
    model: str
    label: str
    """As the page calls it: with the run's name where two runs have a model of one name."""


def shown_of(stores: Sequence[Store]) -> list[PageModel]:
    """The models of all runs, in their order."""
    names = [model.name for store in stores for model in store.study.models]
    labels = run_names(stores)
    return [
        PageModel(store, run, m.name, m.name if names.count(m.name) == 1 else f"{m.name} ({labels[run]})")
        for run, store in enumerate(stores)
        for m in store.study.models
    ]


def run_names(stores: Sequence[Store]) -> list[str]:
    """Names that tell the runs apart: those of their studies or folders, else A and B."""
    names = [store.study.name for store in stores]
    if len(set(names)) == len(names):
        return names
    folders = [store.root.resolve().parent.name for store in stores]
    if len(set(folders)) == len(folders):
        return folders
    return [f"run {chr(ord('A') + place)}" for place in range(len(stores))]


def datasets_of(stores: Sequence[Store]) -> list[str]:
    """The sets of all runs, each once."""
    return list(dict.fromkeys(dataset.name for store in stores for dataset in store.study.datasets))


def points_of(stores: Sequence[Store]) -> list[ReadPoint]:
    """Where something was read and has numbers, in the runs' order."""
    points = list(dict.fromkeys(point for store in stores for point in store.study.traces.points))
    there = [point for point in points if any(any(measured(store, point)) for store in stores)]
    if not there:
        raise StoreError(
            f"{stores[0].root} has no numbers yet, so a report would be empty",
            "Run: anchorscope run STUDY. It makes only what is missing, also in a run of version 0.2.0. If that was "
            "done, no dataset had enough right answers: set a larger `sample` in the study.",
        )
    return there


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


def read_curves(stores: Sequence[Store], points: Sequence[ReadPoint]) -> list[PageCurve]:
    """Every curve that the page has a use for and that has a value."""
    return [curve for curve in _curves(stores, points) if np.isfinite(curve.numbers[0]).any()]


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


def _curves(stores: Sequence[Store], points: Sequence[ReadPoint]) -> Iterator[PageCurve]:
    shown, datasets = shown_of(stores), datasets_of(stores)
    places = {(one.run, one.model): place for place, one in enumerate(shown)}
    keys = {*SWITCHES, *SENTENCES.values(), *(key for chart in _charts(stores) for key in chart.keys)}
    for at, point in enumerate(points):
        for run, store in enumerate(stores):
            for origin, cell in measured(store, point):
                where = (at, places[run, origin.model], datasets.index(origin.dataset))
                for key, line in read_lines(cell, point, replicates=False).items():
                    if key in keys:
                        numbers = np.vstack([line.numbers[:3], line.sizes])
                        yield PageCurve(*where, key, 0 if line.by_layer else -1, numbers)


def _charts(stores: Sequence[Store]) -> list[Chart]:
    """Every chart that the runs can have."""
    return list(charts_of([store.study for store in stores]).values())


def tabs_for_page(stores: Sequence[Store]) -> list[tuple[str, str]]:
    """The parts of the report that charts stand in, beside the first: names and titles."""
    charts = _charts(stores)
    names = dict.fromkeys(chart.tab for chart in charts if chart.tab != OVERVIEW)
    order = sorted(names, key=lambda name: list(TABS).index(name) if name in TABS else len(TABS))
    return [(name, TABS.get(name, name.replace("_", " ").capitalize())) for name in order]


def charts_for_page(stores: Sequence[Store]) -> list[dict[str, Any]]:
    """Every chart as the page draws it."""
    return [_chart(chart) for chart in _charts(stores)]


def _chart(chart: Chart) -> dict[str, Any]:
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
