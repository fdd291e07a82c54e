"""The pictures of results/ belong to the tables beside them: drawn again from the tables, they have the same lines.

Coordinates are compared as shares of their panel, so that another version of matplotlib, which may lay out a page a
little differently, changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from published_figures import Compared
from redraw import in_order, point_of, redraw, statistics_of, studies_in

import anchorscope.report.draw.files as saved
from anchorscope.errors import AnchorscopeError
from anchorscope.pathways.record import Statistic
from anchorscope.report.charts import CHARTS, evidence_charts
from anchorscope.report.csv import from_csv, to_csv
from anchorscope.report.figures import draw
from figure_rows import numbers

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = studies_in(RESULTS)
SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"
NEAR = 1e-3  # of a panel: a tenth of a point of ΔP on an axis of a hundred


def charts_of(folder: Path) -> list[str]:
    return [name for name in (*CHARTS, *evidence_charts()) if (folder / f"{name}.csv").exists()]


def tables() -> list[object]:
    names = [(folder, name) for folder in FOLDERS for name in charts_of(folder)]
    names += [(folder, table.stem) for folder in FOLDERS for table in sorted(folder.glob("map-*.csv"))]
    return [pytest.param(folder, name, id=f"{folder.name}-{name}") for folder, name in names]


@pytest.fixture(scope="module")
def pictures_as_svg() -> Iterator[None]:
    """Leave out the formats that are not compared: most of the time goes into them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved, "FORMATS", {"svg": saved.FORMATS["svg"]})
        yield


@pytest.fixture(scope="module")
def redrawn(pictures_as_svg: None, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    made = {folder: tmp_path_factory.mktemp(folder.name) for folder in FOLDERS}
    for folder, place in made.items():
        redraw(folder, place)
    return made


def coordinates(text: str) -> np.ndarray:
    return np.array(re.findall(r"-?\d+(?:\.\d+)?", text), float).reshape(-1, 2)


def shapes(svg: bytes) -> list[list[tuple[str, np.ndarray]]]:
    """For each panel its lines and bands: colour and (point, 2) as shares of the panel."""
    found = []
    for axes in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        if not re.fullmatch(r"axes_\d+", axes.get("id", "")):
            continue
        frame = axes.find(f"{SVG}g/{SVG}path")
        corners = coordinates(frame.get("d"))
        low, size = corners.min(axis=0), np.ptp(corners, axis=0)
        panel = []
        for group in axes.findall(f"{SVG}g"):
            name = group.get("id", "")
            if name.startswith("line2d"):
                drawn = [(path.get("style", ""), path.get("d")) for path in group.findall(f"{SVG}path")]
                panel += [(colour(look), (coordinates(d) - low) / size) for look, d in drawn if d]
                if not any(d for _, d in drawn):  # no line, only a marker: the tick of an anchor layer
                    panel += [(colour(u.get("style", "")), (at(u) - low) / size) for u in group.iter(f"{SVG}use")]
            elif "PolyCollection" in name:
                panel += [(look, extent((points - low) / size)) for look, points in bands(group)]
        found.append(panel)
    return found


def bands(group: ElementTree.Element) -> Iterator[tuple[str, np.ndarray]]:
    """Written out, or defined once and put somewhere."""
    defined = {path.get("id"): coordinates(path.get("d")) for path in group.findall(f"{SVG}defs/{SVG}path")}
    for path in group.findall(f"{SVG}path"):
        yield colour(path.get("style", "")), coordinates(path.get("d"))
    for use in group.iter(f"{SVG}use"):
        yield colour(use.get("style", "")), defined[use.get(HREF, "")[1:]] + at(use)


def at(use: ElementTree.Element) -> np.ndarray:
    return np.array([float(use.get("x", "0")), float(use.get("y", "0"))])


def extent(points: np.ndarray) -> np.ndarray:
    """(layer, 3): x, and from where to where the band reaches there; in which order it was drawn does not matter."""
    by_x: dict[float, list[float]] = {}
    for x, y in points:
        by_x.setdefault(round(float(x), 3), []).append(float(y))
    return np.array([(x, min(y), max(y)) for x, y in sorted(by_x.items())])


def colour(look: str) -> str:
    return "".join(re.findall(r"#[0-9a-f]{6}", look)[-1:])


def differing(left: bytes, right: bytes) -> list[str]:
    """The shapes that differ between two pictures."""
    one, two = shapes(left), shapes(right)
    assert [len(panel) for panel in one] == [len(panel) for panel in two]
    assert sum(len(panel) for panel in one) > 4
    return [
        f"panel {place}, shape {number}, {a[0]}"
        for place, pair in enumerate(zip(one, two, strict=True))
        for number, (a, b) in enumerate(zip(*pair, strict=True))
        if a[0] != b[0] or a[1].shape != b[1].shape or np.abs(a[1] - b[1]).max() > NEAR
    ]


@pytest.mark.parametrize(("folder", "name"), tables())
def test_a_picture_is_drawn_again_from_its_table(folder: Path, name: str, redrawn: dict[Path, Path]):
    place = redrawn[folder]
    assert (place / f"{name}.csv").read_bytes() == (folder / f"{name}.csv").read_bytes()
    assert differing((place / f"{name}.svg").read_bytes(), (folder / f"{name}.svg").read_bytes()) == []
    if not name.startswith("map-"):  # a map's caption says what only the study knows
        assert (place / f"{name}.txt").read_text() == (folder / f"{name}.txt").read_text()


@pytest.mark.parametrize("field", ["value", "low"])
@pytest.mark.parametrize("folder", FOLDERS[:1], ids=lambda folder: folder.name)
def test_one_changed_number_is_seen(folder: Path, field: str, pictures_as_svg: None, tmp_path: Path):
    rows = statistics_of(folder / "delta_p.csv")
    place = next(i for i, row in enumerate(rows) if row.layer == 12 and row.value is not None)
    changed = [*rows]
    changed[place] = replace(rows[place], **{field: getattr(rows[place], field) - 0.5})  # half a point
    models, datasets = in_order(row.model for row in rows), in_order(row.dataset for row in rows)
    charts = {"delta_p": CHARTS["delta_p"]}
    draw(changed, models, datasets, tmp_path, point_of(rows), charts=charts)
    assert (tmp_path / "delta_p.csv").read_bytes() != (folder / "delta_p.csv").read_bytes()
    assert len(differing((tmp_path / "delta_p.svg").read_bytes(), (folder / "delta_p.svg").read_bytes())) == 1


def test_a_table_comes_back_as_it_was_written(tmp_path: Path):
    rows = list(numbers())
    (tmp_path / "table.csv").write_bytes(to_csv(rows))
    assert from_csv(tmp_path / "table.csv", Statistic) == rows
    assert any(row.value is None for row in rows)


def test_a_table_of_something_else_is_refused_with_its_line(tmp_path: Path):
    (tmp_path / "table.csv").write_bytes(to_csv(list(numbers())[:2]).replace(b"delta_p", b"delta_p,", 1))
    with pytest.raises(AnchorscopeError, match="line 2"):
        from_csv(tmp_path / "table.csv", Statistic)
    with pytest.raises(AnchorscopeError, match="not a table of Compared"):
        from_csv(tmp_path / "table.csv", Compared)
