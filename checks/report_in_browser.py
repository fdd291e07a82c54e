"""Does the report work in a real browser: speed, memory, links, keys, print, accessibility, escaping, no requests?

    python checks/report_in_browser.py [STEP …] [--run RUN] [--output DIR]

The report is built from made-up runs of 1,000 and 20,000 samples (helpers/made_up_run.py), which are kept under
~/.cache/anchorscope-checks, and from a run of your own if one is given. The browser is $CHROMIUM or /usr/bin/chromium,
driven by Node 20. Screenshots and reports go to DIR. The last line is one JSON object: `ok` says whether every check of
the page held, `fast` whether every limit on time and size was kept. On a busy machine `fast` may fail alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from anchorscope.progress import printed, told
from anchorscope.store import Store
from helpers.browser import Browser, BrowserError
from helpers.made_up_run import made_up_run
from helpers.report_page import Checks, Numbers
from helpers.steps import CACHE, COMMAND, add_needs, new_parser, print_json

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
"""Limits on the medians, by the number of samples."""


def build(runs: Sequence[Path], out: Path, *options: str) -> Numbers:
    """Write a report with the command, as a user does; return its size and how long it took."""
    out.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    command = [*COMMAND, "report", *map(str, runs), "-o", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"anchorscope report: {done.stderr[-2000:]}")
    return {"MB": megabytes(out), "seconds": round(time.perf_counter() - start, 1)}


def megabytes(file: Path) -> float:
    """The size of a file."""
    return round(file.stat().st_size / 2**20, 2)


STEPS = ("loads", "memory", "filters", "access", "narrow", "links", "drills", "keys", "printing", "escaping", "foreign")
SPEED = ("loads", "memory", "filters")
"""The steps that are also carried out with 20,000 samples."""


def limits(samples: int, size: Numbers, done: Numbers) -> Numbers:
    """Every limit, the value that was measured, and whether the limit was kept."""
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the reports, carry out the steps, print their numbers."""
    parser = new_parser(__doc__)
    which = f"Carry out only these steps, out of {', '.join(STEPS)} (default: all)."
    parser.add_argument("steps", nargs="*", metavar="STEP", help=which)
    add_needs(parser, ["run"])
    where = "Write reports and screenshots to DIR (default: %(default)s)."
    parser.add_argument("-o", "--output", type=Path, default=CACHE / "report", metavar="DIR", help=where)
    sizes = "Build reports of made-up runs with these numbers of samples (default: 1000 20000)."
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), metavar="N", help=sizes)
    parser.add_argument("--keep", action="store_true", help="Use the reports that are in DIR instead of new ones.")
    options = parser.parse_args(arguments)
    if unknown := set(options.steps) - set(STEPS):
        parser.error(f"there is no step '{unknown.pop()}'. The steps are: {', '.join(STEPS)}.")
    steps, out = options.steps or STEPS, options.output
    runs = {f"made-up-{size}": made_up_run(CACHE / f"made-up-{size}", size) for size in options.sizes}
    if options.run is not None:
        runs[options.run.name] = options.run
    # 1. the reports, with and without texts, and of two runs
    numbers: Numbers = {"built": {}}
    wanted: dict[str, tuple[list[Path], tuple[str, ...]]] = {name: ([run], ()) for name, run in runs.items()}
    first = next(iter(runs))
    if not options.steps:
        wanted |= {f"{name}-without-text": ([run], ("--text", "none")) for name, run in runs.items()}
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
                acts = {
                    step: getattr(checks, step)
                    for step in chosen
                    if step not in ("escaping", "foreign") or name == first
                }
            elif name == "two-runs":
                acts = {"loads": checks.loads}
            else:
                store = Store.open(wanted[name][0][0])
                acts = {"without_text": lambda checks=checks, store=store: checks.without_text(store)}  # type: ignore[misc]
            numbers[name] = {step: _carried_out(f"{name}: {step}", act) for step, act in acts.items()}
    # 3. the limits
    promised = {
        size: limits(size, numbers["built"][f"made-up-{size}"], numbers[f"made-up-{size}"])
        for size in options.sizes
        if size in SIZES
    }
    numbers["fast"] = all(each["ok"] for some in promised.values() for each in some.values())
    numbers["ok"] = all(holds(numbers[name]) for name in wanted)
    numbers["promised"] = promised
    told(f"screenshots: {out / 'shots'}")
    print_json(numbers)
    sys.exit(0 if numbers["ok"] else 1)


def _carried_out(title: str, act: Callable[[], Numbers]) -> Numbers:
    """Carry out one step; if the page lacks what the step asks for, the error is its result."""
    with printed(title, None):
        try:
            done = act()
        except BrowserError as error:
            done = {"error": str(error), "ok": False}
    print(title, json.dumps(done, ensure_ascii=False)[:2000], flush=True)
    return done


if __name__ == "__main__":
    main()
