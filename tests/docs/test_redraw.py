"""The pictures of results/ belong to the tables beside them, and can be drawn again from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from published_figures import Compared
from redraw import redraw, studies_in

import anchorscope.report.draw.files as saved
from anchorscope.errors import AnchorscopeError
from anchorscope.pathways.record import Statistic
from anchorscope.report.charts import all_charts
from anchorscope.report.csv import from_csv, to_csv
from figure_rows import numbers

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = studies_in(RESULTS)


def charts_of(folder: Path) -> list[str]:
    return [name for name in all_charts() if (folder / f"{name}.png").exists()]


TABLES = [pytest.param(folder, name, id=f"{folder.name}-{name}") for folder in FOLDERS for name in charts_of(folder)]


@pytest.fixture(scope="module")
def small_pictures() -> Iterator[None]:
    """Draw PNG alone, and small: most of the time goes into pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved, "FORMATS", {"png": {}})
        patch.setattr(saved, "DPI", 10)
        yield


@pytest.fixture(scope="module")
def redrawn(small_pictures: None, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    made = {folder: tmp_path_factory.mktemp(folder.name) for folder in FOLDERS}
    for folder, place in made.items():
        redraw(folder, place)
    return made


def stamp_of(table: Path) -> bytes:
    return b"tEXtTable\0" + hashlib.sha256(table.read_bytes()).hexdigest().encode()


@pytest.mark.parametrize(("folder", "name"), TABLES)
def test_a_picture_is_drawn_again_from_its_table(folder: Path, name: str, redrawn: dict[Path, Path]):
    table, place = folder / f"{name}.csv", redrawn[folder]
    assert {path.suffix for path in place.glob(f"{name}.*")} == {".csv", ".png"}
    assert (place / table.name).read_bytes() == table.read_bytes()
    for picture in (place / f"{name}.png", folder / f"{name}.png"):
        assert stamp_of(table) in picture.read_bytes(), "run: make results"


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
