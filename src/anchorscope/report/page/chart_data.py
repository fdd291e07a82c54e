"""The charts for a page: the same numbers that draw/lines.py draws, and those behind every switch of the page.

The page gets the declaration of each chart (charts.py) with its rows, curves and words, and all numbers as columns. So
paper and screen show the same lines, and the switches of the page choose among numbers that the table has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anchorscope.errors import StoreError
from anchorscope.evidence.lines import lines_of, statistics_of
from anchorscope.pathways.chart import Chart
from anchorscope.pathways.lookup import measured
from anchorscope.pathways.record import PATHWAYS, Key, Statistic
from anchorscope.report.charts import CHARTS, OVERVIEW, TABS, WITH_PASSAGES, charts_of, evidence_charts
from anchorscope.report.draw.palette import MARKERS, looks
from anchorscope.report.page.pack import Pack, whole
from anchorscope.report.text.caption import POSITIONS, SITES
from anchorscope.store import Store, Table
from anchorscope.study.terms import ReadPoint

SPLITS = ("layer", "anchor", "layer_half", "anchor_half")
SPLIT_CONDITIONS = (
    "knockout", "permuted", "knockout-permuted", "control_question", "matched_question",
    "matched_question-control_question", "knockout_context", "permuted_context", "knockout_context-permuted_context",
    "knockout_both",
)  # fmt: skip
"""What a page can show by groups, beside what its charts draw."""
UNSPLIT = (
    "auroc", "delta_auroc", "auroc_question_only", "auroc_text_only", "auroc_within_relation", "auroc_refit",
    "delta_auroc_refit", "mass",
)  # fmt: skip
ANCHORS = ("none", "best", "half")
COLUMNS = ("statistic", "condition", "split", "anchor", "correction", "group", "stratum")
NUMBERS = ("layer", "value", "low", "high", "n")
POINTS = 100.0  # ΔP is kept to a hundredth of a point
SHARES = 10_000.0  # AUROC and its like to a ten thousandth


class PageModel(NamedTuple):
    """One model of one run, as the page calls it."""

    store: Store
    """The run."""
    run: int
    """Which of the page's runs."""
    model: str
    """As the study calls it."""
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
    there = [point for point in points if any(any(measured(store, PATHWAYS, point)) for store in stores)]
    if not there:
        raise StoreError(
            f"{stores[0].root} has no pathways yet, so a report would be empty",
            "Finish the run with: anchorscope run STUDY. If it is finished, no dataset had enough right answers: set a "
            "larger `sample` in the study and run it again.",
        )
    return there


def wanted(key: Key) -> bool:
    """Whether the page has a use for a number."""
    if key in _DRAWN:
        return True
    if key.anchor not in ANCHORS:
        return False
    if key.split == "none":
        return key.statistic in (*UNSPLIT, "delta_p")
    return key.statistic == "delta_p" and key.split in SPLITS and key.condition in SPLIT_CONDITIONS


_DRAWN = {key for chart in (CHARTS | WITH_PASSAGES).values() for key in chart.keys}


class PageCurve(NamedTuple):
    """The numbers of one key, layer by layer."""

    point: int
    """Which read point of the page."""
    model: int
    """Which model of the page."""
    dataset: int
    """Which set of the page."""
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
    return POINTS if key.statistic in ("delta_p", "delta_logit", "anchor_layer") else SHARES


def _curves(stores: Sequence[Store], points: Sequence[ReadPoint]) -> Iterator[PageCurve]:
    shown, datasets = shown_of(stores), datasets_of(stores)
    places = {(one.run, one.model): place for place, one in enumerate(shown)}
    for at, point in enumerate(points):
        for run, store in enumerate(stores):
            for origin, cell in measured(store, PATHWAYS, point):
                where = (at, places[run, origin.model], datasets.index(origin.dataset))
                for key, first, numbers in _of_table(cell.table(PATHWAYS.at(point))):
                    yield PageCurve(*where, key, first, numbers)
            for (model, dataset, key), numbers in _by_key(statistics_of(lines_of(store, point), point)).items():
                yield PageCurve(at, places[run, model], datasets.index(dataset), key, 0, numbers)


def _by_key(rows: Iterable[Statistic]) -> dict[tuple[str, str, Key], NDArray[np.float64]]:
    """Rows of evidence, which have a value for every layer from 0 on."""
    drawn = {key for chart in evidence_charts().values() for key in chart.keys}
    curves: dict[tuple[str, str, Key], list[list[float]]] = {}
    for row in rows:
        if row.key in drawn:
            numbers = [np.nan if number is None else number for number in (row.value, row.low, row.high)]
            curves.setdefault((row.model, row.dataset, row.key), []).append([*numbers, row.n])
    return {key: np.array(layers, np.float64).T for key, layers in curves.items()}


def _of_table(table: Table[Statistic]) -> Iterator[tuple[Key, int, NDArray[np.float64]]]:
    """The curves of one table that the page has a use for: by columns, since most rows are not wanted."""
    # 1. the key of each row as one number: its columns' dictionaries, digit by digit
    rows = pa.Table.from_batches(table.batches([*COLUMNS, *NUMBERS])).combine_chunks()
    coded = [rows.column(name).chunk(0).dictionary_encode() for name in COLUMNS]
    values, digits = [c.dictionary.to_pylist() for c in coded], [c.indices.to_numpy() for c in coded]
    code = np.zeros(len(rows), np.int64)
    for named, digit in zip(values, digits, strict=True):
        code = code * len(named) + digit
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    # 2. which of these keys are wanted
    keys = [Key(*(named[digit[row]] for named, digit in zip(values, digits, strict=True))) for row in first]
    kept = np.array([wanted(key) for key in keys])[which]
    # 3. their rows, key by key and layer by layer
    numbers = np.stack([rows.column(name).to_numpy() for name in NUMBERS]).astype(np.float64)[:, kept]
    which = which[kept]
    order = np.lexsort((numbers[0], which))
    numbers, which = numbers[:, order], which[order]
    for place in np.unique(which):
        part = numbers[:, slice(*np.searchsorted(which, [place, place + 1]))]
        if (np.diff(part[0]) == 0).any():
            raise ValueError(f"two rows of one layer for {keys[place]}")
        yield keys[place], int(part[0, 0]), part[1:]


def _charts(stores: Sequence[Store]) -> list[Chart]:
    """Every chart that the runs can have."""
    return [*charts_of([store.study for store in stores]).values(), *evidence_charts().values()]


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
    """How each set is drawn."""
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
    """Every read point with its words."""
    return [
        {"site": p.site, "position": p.position, "words": f"{SITES[p.site]} at {POSITIONS[p.position]}"} for p in points
    ]
