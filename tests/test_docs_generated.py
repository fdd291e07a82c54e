"""Tables of columns, stages, charts, claims and detectors in docs/ are what the code says."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "docs" / "tools"
INTERVAL = re.compile(r"(?:(−?\d[\d.,]*),? )?\((−?\d[\d.,]*) to (−?\d[\d.,]*)")
TABLES = dict.fromkeys(["results/context/README.md", "docs/context.md"], "results/context")
"""Pages all of whose intervals stand in the tables of a folder."""


def test_generated_blocks_are_what_the_code_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(TOOLS)
    assert list(import_module("generate").outdated()) == [], "run: python docs/tools/generate.py"


def measured(folder: Path) -> Iterator[tuple[float, float, float]]:
    """Value and interval of every row of the tables and ledgers of a folder; a lead and the same lag are one number."""
    rows: list[dict[str, str | float | None]] = []
    for path in folder.rglob("*.csv"):
        with path.open(encoding="utf-8", newline="") as stream:
            rows += csv.DictReader(stream)
    for path in folder.rglob("claims*.json"):
        rows += json.loads(path.read_text(encoding="utf-8"))["verdicts"]
    for row in rows:
        for names in (("value", "low", "high"), ("auroc", "auroc_low", "auroc_high")):
            if row.get(names[0]) not in (None, ""):
                value, low, high = (float(row[name] or "nan") for name in names)
                yield from ((value, low, high), (-value, -high, -low))


def without_table(page: str, folder: Path) -> list[str]:
    """The intervals of a page that are in no table of a folder, each with the number before it."""
    numbers = list(measured(folder))
    printed: dict[int, set[tuple[str, ...]]] = {}
    lost = []
    for match in INTERVAL.finditer(page):
        digits = len(match[3].partition(".")[2])
        if digits not in printed:
            printed[digits] = {tuple(f"{x:.{digits}f}".replace("-", "−") for x in number) for number in numbers}
        if match.groups() not in printed[digits]:
            lost.append(match[0])
    return lost


@pytest.mark.parametrize("page", TABLES)
def test_every_interval_of_a_page_is_in_a_committed_table(page: str):
    text, folder = (ROOT / page).read_text(encoding="utf-8"), ROOT / TABLES[page]
    assert INTERVAL.search(text)
    assert without_table(text, folder) == []


def test_an_interval_without_a_table_is_found():
    page = "One layer is ahead by 0.130 (0.061 to 0.202), or by 0.130 (0.031 to 0.234)."
    assert without_table(page, ROOT / "results" / "context") == ["0.130 (0.061 to 0.202"]
