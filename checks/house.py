"""How large is each room of the house, now and before, and are its lines and functions as long as they were?

    python checks/house.py [--before CHECKOUT] [--run RUN]

Counts lines of the package by room, of the page's script, of tests, checks, benchmarks and docs/tools; gives the median
and the 90th percentile of the length of lines and of functions; and counts make targets and imports between tests and
checks. With `--before` the same is said of an older checkout. Nothing is run. `numbers` are those that charts, claims
and tables name, and with `--run` those that the run has computed, at its first read point.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from anchorscope.evidence.experiments import experiments
from anchorscope.pathways.lookup import measured, read_lines
from anchorscope.store import Store
from helpers.steps import ROOT, Figures, add_needs, new_parser, print_json


def lines_in(files: Iterable[Path]) -> int:
    """The number of lines of some files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def middle(values: Sequence[int]) -> dict[str, int]:
    """The median and the 90th percentile."""
    ordered = sorted(values)
    return {"median": ordered[len(ordered) // 2], "90 %": ordered[len(ordered) * 9 // 10]} if ordered else {}


def modules_of(path: Path) -> set[str]:
    """The first names of the modules that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.split(".")[0] for name in names}


def importers(root: Path, of: str, by: str) -> int:
    """The number of files in the folder `by` that import a module of the folder `of`."""
    theirs = {path.stem for path in (root / of).iterdir()} - {path.stem for path in (root / by).iterdir()}
    return sum(bool(modules_of(path) & theirs) for path in (root / by).rglob("*.py"))


def size_of(root: Path) -> Figures:
    """The numbers of one checkout."""
    source = root / "src" / "anchorscope"
    files = sorted(source.rglob("*.py"))
    rooms: Counter[str] = Counter()
    for path in files:
        place = path.relative_to(source)
        rooms[place.parts[0] if len(place.parts) > 1 else "(top)"] += lines_in([path])
    texts = [path.read_text(encoding="utf-8") for path in files]
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    return {
        "src": sum(rooms.values()),
        "rooms": dict(sorted(rooms.items())),
        "page script": lines_in((source / "report" / "templates").glob("*.js")),
        **{name: lines_in((root / name).rglob("*.py")) for name in ("tests", "checks", "benchmarks", "docs/tools")},
        "line length": middle([len(line) for text in texts for line in text.splitlines() if line.strip()]),
        "function length": middle(functions),
        "make targets": len(re.findall(r"^[a-z-]+:(?!=)", makefile, re.MULTILINE)),
        "tests that import checks": importers(root, "checks", "tests"),
        "checks that import tests": importers(root, "tests", "checks"),
    }


def numbers(run: Path | None) -> Figures:
    """How many numbers are named, and how many a run has computed, by model and dataset."""
    charts = {key for each in experiments() for chart in each.charts for key in chart.keys}
    claims = {key for each in experiments() for key in each.claimed}
    named = {key for each in experiments() for key in each.keys}
    counted: Figures = {"named": len(named), "by charts": len(charts), "by claims": len(claims)}
    if run is None:
        return counted
    store = Store.open(run)
    point = store.study.traces.points[0]
    cells = {f"{o.model}, {o.dataset}": read_lines(cell, point, replicates=False) for o, cell in measured(store, point)}
    unread = {name: sum(not key.among(named) for key in lines) for name, lines in cells.items()}
    return counted | {"computed": {name: len(lines) for name, lines in cells.items()}, "of them not read": unread}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the numbers of this checkout and of an older one."""
    parser = new_parser(__doc__)
    add_needs(parser, ["before", "run"])
    options = parser.parse_args(arguments)
    older = {"before": size_of(options.before)} if options.before else {}
    print_json({"now": size_of(ROOT), **older, "numbers": numbers(options.run)})


if __name__ == "__main__":
    main()
