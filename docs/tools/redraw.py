"""Draw the charts of a results folder again from the tables beside them.

A chart's CSV holds every number that is drawn. So pictures can be drawn again when the drawing changes, and a reader
can check that a picture belongs to its table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import TypeVar, cast

from anchorscope.errors import AnchorscopeError
from anchorscope.pathways.record import MapStatistic, Statistic
from anchorscope.report.charts import CHARTS, evidence_charts
from anchorscope.report.csv import from_csv
from anchorscope.report.draw.heatmap import draw_maps
from anchorscope.report.figures import draw
from anchorscope.store.files import write_bytes
from anchorscope.study.terms import Position, ReadPoint, Site

Thing = TypeVar("Thing", bound=Hashable)

FIRST = "delta_p"
"""The chart that every study has: its table says which models and sets there are, and in which order."""


def studies_in(results: Path) -> list[Path]:
    """The folders of results that have a study's charts."""
    return sorted(table.parent for table in results.glob(f"*/{FIRST}.csv"))


def redraw(folder: Path, to: Path | None = None) -> list[Path]:
    """Draw every chart and map of a results folder from its table, into the same folder unless `to` is another."""
    place = to or folder
    first = statistics_of(folder / f"{FIRST}.csv")
    models, datasets = in_order(row.model for row in first), in_order(row.dataset for row in first)
    point = point_of(first)
    written = []
    for name, chart in {**CHARTS, **evidence_charts()}.items():
        table = folder / f"{name}.csv"
        if table.exists():
            written += draw(statistics_of(table), models, datasets, place, point, charts={name: chart})
    for table in sorted(folder.glob("map-*.csv")):
        written += _redraw_map(table, models, datasets, place, point)
    return written


def statistics_of(table: Path) -> list[Statistic]:
    """The rows of a chart's table, each once: a number that two panels show is written twice."""
    return in_order(from_csv(table, Statistic))


def point_of(rows: Iterable[Statistic]) -> ReadPoint:
    """The read point of all rows."""
    points = {(row.site, row.position) for row in rows}
    if len(points) != 1:
        raise AnchorscopeError(f"a chart has one read point, but this table has {sorted(points)}")
    ((site, position),) = points
    return ReadPoint(cast(Site, site), cast(Position, position))


def in_order(things: Iterable[Thing]) -> list[Thing]:
    """Each thing once, in the order of first appearance."""
    return list(dict.fromkeys(things))


def _redraw_map(table: Path, models: list[str], datasets: list[str], place: Path, point: ReadPoint) -> list[Path]:
    """Draw a map without its caption, which names the layers of the cut and so needs the study."""
    with tempfile.TemporaryDirectory() as scratch:
        drawn = draw_maps(from_csv(table, MapStatistic), models, datasets, Path(scratch), point, "")
        written = [place / path.name for path in drawn if path.suffix != ".txt"]
        for path in written:
            write_bytes(path, (Path(scratch) / path.name).read_bytes())
    return written
