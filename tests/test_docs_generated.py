"""Tables of columns, stages, charts, claims and detectors in docs/ are what the code says."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "docs" / "tools"
INTERVAL = re.compile(r"(?:(−?\d[\d.,]*),? )?\((−?\d[\d.,]*) to (−?\d[\d.,]*)")
MADE = re.compile(r"<!-- generated: .*?<!-- end -->|^```.*?^```$", re.DOTALL | re.MULTILINE)
SHARE = re.compile(r"(\d+) of (\d+): [\d.]+ % \(([\d.]+) to ([\d.]+)\)")
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").rglob("README.md"))
]
TABLES = {page: "results/context" if "context" in page else "results" for page in sorted(PAGES)}
"""The folder in whose tables all intervals of a page stand."""


def test_generated_blocks_are_what_the_code_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(TOOLS)
    assert list(import_module("generate").outdated()) == [], "run: python docs/tools/generate.py"


@cache
def measured(folder: Path) -> Sequence[tuple[float, float, float]]:
    """Value and interval of every row of the tables, ledgers and cards of a folder; a lead and the same lag are one."""
    rows: list[dict[str, str | float | None]] = []
    for path in folder.rglob("*.csv"):
        with path.open(encoding="utf-8", newline="") as stream:
            rows += csv.DictReader(stream)
    for path in folder.rglob("claims*.json"):
        rows += json.loads(path.read_text(encoding="utf-8"))["verdicts"]
    for path in folder.rglob("detectors/*.json"):
        rows.append(dict(zip(("value", "low", "high"), json.loads(path.read_text())["card"]["auroc"], strict=True)))
    found = []
    for row in rows:
        for low in [name for name in row if name is not None and name.endswith("low")]:
            names = (low[:-3].rstrip("_") or "value", low, f"{low[:-3]}high")
            if all(row.get(name) not in (None, "") for name in names):
                value, below, above = (float(row[name] or "nan") for name in names)
                found += [(value, below, above), (-value, -above, -below)]
    return found


@cache
def printed(folder: Path, digits: int) -> set[tuple[str | None, ...]]:
    """All of them as a page prints them, with the value right before the interval and elsewhere."""
    found = {tuple(f"{x:.{digits}f}".replace("-", "−") for x in number) for number in measured(folder)}
    return found | {(None, *number[1:]) for number in found}


def wilson(right: int, of: int) -> tuple[str, str]:
    """The 95 % interval of a share, in percent."""
    square = 1.96**2
    high, low = np.roots([of + square, -(2 * right + square), right**2 / of])
    return f"{100 * low:.1f}", f"{100 * high:.1f}"


def without_table(page: str, folder: Path, recorded: str = "") -> list[str]:
    """The intervals of a page that are in no table of a folder and not `recorded`, each with the number before it."""
    shares = {match[0] for match in SHARE.finditer(page) if wilson(int(match[1]), int(match[2])) == match.groups()[2:]}
    counted = " ".join(shares)
    return [
        match[0]
        for match in INTERVAL.finditer(page)
        if match.groups() not in printed(folder, len(match[3].partition(".")[2]))
        and match[0] not in recorded
        and match[0] not in counted
    ]


@pytest.mark.parametrize("page", TABLES)
def test_every_interval_of_a_page_is_in_a_committed_table(page: str):
    """Or among the recorded results of the checks; those of generated blocks come from tables anyway."""
    text, folder = (ROOT / page).read_text(encoding="utf-8"), ROOT / TABLES[page]
    recorded = (ROOT / "checks" / "README.md").read_text(encoding="utf-8")
    assert without_table(MADE.sub("", text), folder, recorded) == []


def test_an_interval_without_a_table_is_found():
    page = "It leads by 0.130 (0.061 to 0.202), or by 0.130 (0.031 to 0.234), and 74 of 79: 93.7 % (86.0 to 98.3)."
    lost = without_table(page, ROOT / "results" / "context")
    assert lost == ["0.130 (0.061 to 0.202", "(86.0 to 98.3"]
    assert without_table(page.replace("98.3", "97.3"), ROOT / "results" / "context") == lost[:1]
