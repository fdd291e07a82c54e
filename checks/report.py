"""The report, checked in a real browser: size, speed, memory, links, keys, print, access, escaping, no requests.

`python checks/report.py [STEP …] [--run RUN] [--out DIR]`. Without a run it is built from made-up ones of 1,000 and
20,000 samples (big_run.py), kept under ~/.cache/anchorscope-checks. Screenshots and reports go to DIR. The last line is
one JSON object; `ok` in it says whether every check of the page held, `fast` whether every time and size did: on a busy
machine the second may fail alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from anchorscope.progress import printed, told
from anchorscope.store import Store
from big_run import big_run
from browser import Browser, BrowserError
from report_numbers import numbers as numbers_of
from report_page import Checks, Numbers

CACHE = Path.home() / ".cache" / "anchorscope-checks"
SIZES = (1000, 20_000)

LIMITS = {
    "file MB": {1000: 6.0, 20_000: 15.0},
    "usable ms": {1000: 2000.0, 20_000: 2000.0},
    "filter ms": {1000: 150.0, 20_000: 150.0},
    "sort ms": {1000: 150.0, 20_000: 150.0},
    "usable cpu ms": {1000: 2000.0, 20_000: 2000.0},
    "filter cpu ms": {1000: 150.0, 20_000: 150.0},
    "sort cpu ms": {1000: 150.0, 20_000: 150.0},
    "memory MB": {1000: 80.0, 20_000: 250.0},
}
"""What is promised, by samples; the medians are held against it."""


def build(runs: Sequence[Path], out: Path, *options: str) -> Numbers:
    """Write a report with the command, as a user does; how large it is and how long that took."""
    out.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    command = [sys.executable, "-m", "anchorscope.cli", "report", *map(str, runs), "-o", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"anchorscope report: {done.stderr[-2000:]}")
    return {"MB": megabytes(out), "seconds": round(time.perf_counter() - start, 1)}


def megabytes(file: Path) -> float:
    """How large a file is."""
    return round(file.stat().st_size / 2**20, 2)


STEPS = ("loads", "memory", "filters", "access", "narrow", "links", "drills", "keys", "printing", "escaping")
SPEED = ("loads", "memory", "filters")
"""What is done at 20,000 samples, and what else of a page that does not depend on their number."""


def limits(samples: int, size: Numbers, done: Numbers) -> Numbers:
    """What was promised, and what came of it."""
    got = {
        "file MB": size["MB"],
        "usable ms": done.get("loads", {}).get("usable", {}).get("median"),
        "filter ms": done.get("filters", {}).get("filter", {}).get("median"),
        "sort ms": done.get("filters", {}).get("sort", {}).get("median"),
        "usable cpu ms": done.get("loads", {}).get("cpu", {}).get("median"),
        "filter cpu ms": done.get("filters", {}).get("filter", {}).get("cpu", {}).get("median"),
        "sort cpu ms": done.get("filters", {}).get("sort", {}).get("cpu", {}).get("median"),
        "memory MB": done.get("memory", {}).get("seen", {}).get("heap_and_arrays"),
    }
    return {
        name: {"got": value, "limit": LIMITS[name][samples], "ok": value <= LIMITS[name][samples]}
        for name, value in got.items()
        if value is not None
    }


def holds(value: Any) -> bool:
    """Whether every `ok` in nested numbers is true."""
    if isinstance(value, dict):
        return value.get("ok", True) is True and all(holds(each) for each in value.values())
    return True


def main() -> int:
    """Build the reports, carry out the steps, print their numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", choices=[*STEPS, []], default=[], help="which; default: all")
    parser.add_argument("--run", type=Path, help="a run of your own, checked too")
    parser.add_argument("--out", type=Path, default=CACHE / "report", help="where reports and screenshots go")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="made-up runs of so many samples")
    parser.add_argument("--keep", action="store_true", help="reports that are in --out are not built again")
    options = parser.parse_args()
    steps, out = options.steps or STEPS, options.out
    runs = {f"made-up-{size}": big_run(CACHE / f"made-up-{size}", size) for size in options.sizes}
    if options.run is not None:
        runs[options.run.name] = options.run
    # 1. the reports, with and without texts, and of two runs
    numbers: Numbers = {"built": {}}
    wanted: dict[str, tuple[list[Path], tuple[str, ...]]] = {name: ([run], ()) for name, run in runs.items()}
    first = next(iter(runs))
    if not options.steps:
        wanted |= {f"{name}-no-text": ([run], ("--no-text",)) for name, run in runs.items()}
        if len(runs) > 1:
            wanted["two-runs"] = (list(runs.values())[:2], ())
    for name, (some, how) in wanted.items():
        file = out / f"{name}.html"
        with printed(f"report {name}", None):
            kept = options.keep and file.exists()
            numbers["built"][name] = {"MB": megabytes(file)} if kept else build(some, file, *how)
    # 2. in a browser
    with Browser() as browser:
        numbers["browser"] = browser("version")
        for name in wanted:
            checks = Checks(browser, out / f"{name}.html", out / "shots")
            acts: dict[str, Callable[[], Numbers]] = {}
            if name in runs:
                chosen = SPEED if name == f"made-up-{SIZES[1]}" and not options.steps else steps
                acts = {step: getattr(checks, step) for step in chosen if step != "escaping" or name == first}
                if not options.steps:
                    acts["numbers"] = lambda checks=checks, run=runs[name]: _numbers(checks, run)  # type: ignore[misc]
            elif name == "two-runs":
                acts = {"compared": checks.compared, "loads": checks.loads}
            else:
                store = Store.open(wanted[name][0][0])
                acts = {"without_text": lambda checks=checks, store=store: checks.without_text(store)}  # type: ignore[misc]
            numbers[name] = {step: _carried_out(f"{name}: {step}", act) for step, act in acts.items()}
    # 3. what was promised
    promised = {
        size: limits(size, numbers["built"][f"made-up-{size}"], numbers[f"made-up-{size}"])
        for size in options.sizes
        if size in SIZES
    }
    numbers["fast"] = all(each["ok"] for some in promised.values() for each in some.values())
    numbers["ok"] = all(holds(numbers[name]) for name in wanted)
    numbers["promised"] = promised
    told(f"screenshots: {out / 'shots'}")
    print(json.dumps(numbers, ensure_ascii=False))
    return 0 if numbers["ok"] else 1


def _numbers(checks: Checks, run: Path) -> Numbers:
    """What the page measures of a slice is what Python measures."""
    checks.open()
    return numbers_of(checks.browser, Store.open(run))


def _carried_out(title: str, act: Callable[[], Numbers]) -> Numbers:
    """One check; where the page lacks what it asks for, that is its result."""
    with printed(title, None):
        try:
            done = act()
        except BrowserError as error:
            done = {"error": str(error), "ok": False}
    print(title, json.dumps(done, ensure_ascii=False)[:2000], flush=True)
    return done


if __name__ == "__main__":
    sys.exit(main())
