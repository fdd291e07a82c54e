"""The report: one run, or two side by side, as one HTML file that needs no network.

The file holds the numbers of all charts, the samples behind them and the page's own code. So it can be mailed,
archived and opened in ten years. The template and its parts are in `templates/`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.compare import MEAN, MEASURES
from anchorscope.detectors.record import Comparison
from anchorscope.detectors.scored import read_comparison, read_scores, scored_cells
from anchorscope.evidence.ledger import kept_ledger
from anchorscope.progress import Progress, silent
from anchorscope.report.draw.detectors import LOOKS, SIDES, gain_of
from anchorscope.report.page.chart_data import (
    chart_for_page,
    looks_for_page,
    pack_curves,
    points_for_page,
    read_curves,
    tabs_for_page,
)
from anchorscope.report.page.pack import Pack
from anchorscope.report.page.runs import PageRuns
from anchorscope.report.page.sample_data import LINES, Scores, pack_samples
from anchorscope.report.text.summary import sentences
from anchorscope.store import Store
from anchorscope.store.files import write_output, write_text
from anchorscope.store.rundir import versions
from anchorscope.study.terms import MIN_GROUP

SCRIPTS = (
    "packed", "state", "pen", "charts", "overview", "ledger", "samples", "filters", "explorer", "detail", "detectors",
    "main",
)  # fmt: skip
"""The page's own code, in this order."""


@dataclass(frozen=True)
class Detection:
    """Scores and comparisons of detectors, for the runs on which they were compared."""

    scores: Scores
    comparisons: Mapping[int, Sequence[Comparison]]


def page(runs: PageRuns, detection: Detection, with_text: Collection[str]) -> str:
    """The report as one HTML file. Datasets that are not in `with_text` show ids in place of questions and answers."""
    pack = Pack()
    about = _about(runs, detection, pack, with_text)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    script = _script()
    return environment.from_string(_part("page.html")).render(
        title=about["title"],
        about=in_script(about),
        columns=pack.text(),
        style=_part("page.css"),
        script=script,
        script_hash=_hash_of(script),
        sentences=about["runs"],
        two=len(runs.stores) > 1,
    )


def _script() -> str:
    """The text of the page's one script element, to the byte: the browser compares its hash."""
    parts = "\n".join(_part(f"{name}.js") for name in SCRIPTS)
    return f'\n"use strict";\n(() => {{\n{parts}\n}})();\n'


def _hash_of(script: str) -> str:
    """The hash that the page's Content-Security-Policy names, so that the browser runs this script and no other."""
    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"


def _part(name: str) -> str:
    """A part of the page, as it is kept."""
    return (files("anchorscope.report") / "templates" / name).read_text(encoding="utf-8")


def _about(runs: PageRuns, detection: Detection, pack: Pack, with_text: Collection[str]) -> dict[str, Any]:
    """All data of the page other than the columns."""
    curves = read_curves(runs)
    return {
        "title": " and ".join(runs.names),
        "runs": [
            {
                "name": name,
                "description": store.study.description,
                "sentences": sentences(
                    (
                        (curve.key, curve.numbers)
                        for curve in curves
                        if curve.point == 0 and runs.models[curve.model].run == run
                    ),
                    kept_ledger(store.root),
                ),
                "study": without_folders(store.study.record()),
            }
            for run, (name, store) in enumerate(zip(runs.names, runs.stores, strict=True))
        ],
        "models": [{"run": one.run, "name": one.label} for one in runs.models],
        "sets": looks_for_page(runs.datasets),
        "points": points_for_page(runs.points),
        "conditions": LINES,
        "charts": [chart_for_page(chart) for chart in runs.charts],
        "tabs": tabs_for_page(runs.charts),
        "curves": pack_curves(pack, curves),
        "samples": pack_samples(pack, runs, detection.scores, with_text),
        "verdicts": [row for run, store in enumerate(runs.stores) for row in _verdicts(store, run)],
        "detectors": _detectors(detection),
        "versions": versions(),
        "columns": pack.directory,
        "min_group": MIN_GROUP,
    }


def without_folders(value: Any) -> Any:
    """A record with folders reduced to their last name, so that a page reveals nothing of its author's disk."""
    if isinstance(value, dict):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_folders(item) for item in value]
    return f"…/{Path(value).name}" if isinstance(value, str) and Path(value).is_absolute() else value


def _verdicts(store: Store, run: int) -> list[dict[str, Any]]:
    return [
        {
            "run": run,
            "words": row.words(1 if abs(row.threshold) >= 1 else 3),
            "if": row.condition,
            "section": row.section,
            "tags": row.tags,
            **asdict(row),
        }
        for row in kept_ledger(store.root) or []
    ]


def _detectors(detection: Detection) -> dict[str, Any]:
    """The table of detectors: rows of run, model, set, detector, measure, value, low, high, p; and how to draw it."""
    rows = [
        [run, row.model, row.dataset, row.detector, MEASURES.index(row.measure), *_short(row)]
        for run, table in detection.comparisons.items()
        for row in table
    ]
    entries = catalogue()
    return {
        "measures": MEASURES,
        "rows": rows,
        "titles": {name: entry.title for name, entry in entries.items()},
        "mean": MEAN,
        "gains": {run: gain_of(table) for run, table in detection.comparisons.items()},
        "sides": {name: entry.side for name, entry in entries.items()},
        "looks": {side: (LOOKS[side], SIDES[side]) for side in LOOKS},
    }


def _short(row: Comparison) -> list[float | None]:
    """Value, interval and p, to five digits; null where there is none."""
    return [None if number != number else float(f"{number:.5g}") for number in (row.value, row.low, row.high, row.p)]


def in_script(value: Any) -> str:
    """JSON that can stand inside a script element: nothing in it can end the element or begin a comment."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    for sign in "<>&\u2028\u2029":
        written = written.replace(sign, f"\\u{ord(sign):04x}")
    return written


def write_page(
    stores: Sequence[Store], path: Path | None, with_text: Collection[str], progress: Progress = silent
) -> Path:
    """Write the report of one run, or of two side by side, to `path` or into the first run.

    `with_text`: the datasets whose texts are shown.
    """
    with progress("writing the report", None):
        text = page(PageRuns(tuple(stores)), detected(stores), with_text)
        if path is not None:
            write_output(path, text)
            return path
        own = stores[0].root / "report.html"
        write_text(own, text)
        return own


def detected(stores: Sequence[Store]) -> Detection:
    """The scores and comparisons of detectors, where `anchorscope detect eval` made them."""
    scores, comparisons = {}, {}
    for run, store in enumerate(stores):
        for model, dataset in scored_cells(store):
            samples, by_name = read_scores(store, model, dataset)
            scores[run, model, dataset] = {
                name: dict(zip(samples.inputs.ids, map(float, by_repeat.mean(axis=0)), strict=True))
                for name, by_repeat in by_name.items()
            }
        if rows := read_comparison(store):
            comparisons[run] = rows
    return Detection(scores, comparisons)
