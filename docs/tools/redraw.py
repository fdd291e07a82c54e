"""Draw the charts of a results folder again from the tables beside them, as PNG.

A chart's CSV holds every number that is drawn. So pictures can be drawn again when the drawing changes. A PNG carries
the SHA-256 of its table (`Table`), so that anybody can check that the picture belongs to the table.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
import zlib
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import TypeVar, cast

from anchorscope.errors import AnchorscopeError
from anchorscope.pathways.record import Statistic
from anchorscope.report.charts import all_charts
from anchorscope.report.csv import from_csv
from anchorscope.report.figures import draw
from anchorscope.store.files import write_bytes
from anchorscope.study.terms import Position, ReadPoint, Site

Thing = TypeVar("Thing", bound=Hashable)
END = 12  # bytes of the last chunk of a PNG

FIRST = "delta_p"
"""The chart that every study has: its table says which models and sets there are, and in which order."""


def studies_in(results: Path) -> list[Path]:
    """The folders of results that have a study's charts."""
    return sorted(table.parent for table in results.glob(f"*/{FIRST}.csv"))


def redraw(folder: Path, to: Path | None = None, all_formats: bool = False) -> list[Path]:
    """Draw the charts of a results folder from their tables, into the same folder unless `to` is another.

    Drawn are the charts whose picture the folder has: the others are there as tables alone. `all_formats` draws every
    chart, and also writes SVG, PDF and the caption, which results/ does not keep.
    """
    place = to or folder
    first = statistics_of(folder / f"{FIRST}.csv")
    models, datasets = in_order(row.model for row in first), in_order(row.dataset for row in first)
    point = point_of(first)
    written: list[Path] = []
    for name, chart in all_charts().items():
        table = folder / f"{name}.csv"
        if table.exists() and (all_formats or table.with_suffix(".png").exists()):
            with tempfile.TemporaryDirectory() as scratch:
                drawn = draw(statistics_of(table), models, datasets, Path(scratch), point, charts={name: chart})
                written += write_pictures(drawn, Path(scratch) / table.name, place, all_formats)
    return written


def write_pictures(drawn: Iterable[Path], table: Path, place: Path, all_formats: bool) -> list[Path]:
    """Copy a table and the PNG that was drawn of it into a folder, and other formats on demand."""
    written = []
    for path in drawn:
        if all_formats or path.suffix in (".png", ".csv"):
            content = path.read_bytes()
            write_bytes(place / path.name, stamped(content, table) if path.suffix == ".png" else content)
            written.append(place / path.name)
    return written


def stamped(png: bytes, table: Path) -> bytes:
    """The picture with the SHA-256 of its table before its last chunk."""
    text = b"Table\0" + hashlib.sha256(table.read_bytes()).hexdigest().encode()
    chunk = struct.pack(">I", len(text)) + b"tEXt" + text + struct.pack(">I", zlib.crc32(b"tEXt" + text))
    return png[:-END] + chunk + png[-END:]


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
