"""Is the code laid out as docs/decisions.md says, and how long do its own gates take?

    python checks/code_layout.py [STEP …] [--before CHECKOUT] [--data DIR --models DIR]

Steps: `layout` lists the folders and counts lines; `names` finds names that stand for two things or say nothing;
`gates` runs the tests that hold the layout (every table in one stage, an experiment by one registration, `detect eval`
alike in one process and on Ray); `same` carries out a small study with the older checkout and with this one and lists
the files that differ; `loop` gives the CPU seconds of `make check` and `make quick`. With --before the first two also
look at an older checkout.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import median

from helpers.cpu_time import cpu_of
from helpers.steps import ROOT, Check, Figures, Options

check = Check(__doc__)
VAGUE = {"each", "made", "found", "said", "some"}
GATES = (
    "tests/run/test_stages.py::test_every_kind_of_table_is_in_exactly_one_stage",
    "tests/run/test_stages.py::test_the_table_of_every_stage_opens",
    "tests/run/test_stages.py::test_an_experiment_by_one_registration_is_in_status_ledger_figures_and_report",
    "tests/run/test_stages.py::test_a_detector_is_fitted_in_the_dtype_the_run_was_begun_in_and_the_model_examined",
    "tests/run/test_ray.py::test_detectors_are_compared_on_ray_as_in_process",
    "tests/test_package.py",
)


def checkouts(options: Options) -> dict[str, Path]:
    """The older checkout, if one was given, and this one."""
    return ({"before": options.before} if options.before else {}) | {"now": ROOT}


def lines_in(place: Path) -> Figures:
    """How many files of Python a folder has, and how long they are."""
    counts = [len(path.read_text(encoding="utf-8").splitlines()) for path in place.rglob("*.py")]
    return {"files": len(counts), "lines": sum(counts), "median": median(counts), "longest": max(counts)}


@check.step()
def layout(options: Options, work: Path) -> Figures:
    """Folders with their files, and the lines of files in src/, checks/ and tests/."""
    source = ROOT / "src" / "anchorscope"
    folders = sorted({path.parent for path in source.rglob("*.py")} - {source})
    names = {
        str(folder.relative_to(source)): sorted(p.name for p in folder.glob("*.py") if p.name != "__init__.py")
        for folder in folders
    }
    figures: Figures = {"folders": names}
    for name, checkout in checkouts(options).items():
        figures[name] = {place: lines_in(checkout / place) for place in ("src", "checks", "tests")}
    return figures


@check.step()
def names(options: Options, work: Path) -> Figures:
    """Class names that stand in several files, functions with locals that say nothing, file names shared by rooms."""
    return {name: names_in(checkout / "src" / "anchorscope") for name, checkout in checkouts(options).items()}


def names_in(source: Path) -> Figures:
    """The names of one checkout."""
    places: dict[str, set[Path]] = {}
    vague: Counter[str] = Counter()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), set()).add(path)
            elif isinstance(node, ast.FunctionDef):
                stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
                vague.update(stored & VAGUE)
    files = Counter(path.name for path in source.rglob("*.py"))
    shared = {name for name, count in files.items() if count > 1}
    return {
        "classes_defined_twice": sorted(name for name, paths in places.items() if len(paths) > 1),
        "functions_with_vague_locals": dict(vague),
        "file_names_shared_by_rooms": sorted(shared - {"__init__.py", "__main__.py", "record.py", "stage.py"}),
    }


@check.step()
def gates(options: Options, work: Path) -> Figures:
    """The tests that hold the layout."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *GATES]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return {"passed": done.returncode == 0, "last line": done.stdout.strip().splitlines()[-1]}


@check.step("before", "data", "models")
def same(options: Options, work: Path) -> Figures:
    """The files of a small seeded run that differ from those of the older checkout."""
    import same_bytes_as_before

    figures: Figures = same_bytes_as_before.run(options, work)
    return figures


@check.step(by_default=False)
def loop(options: Options, work: Path) -> Figures:
    """CPU seconds, and seconds by the clock, of `make check` and of `make quick`. Leave the machine alone meanwhile."""
    figures: Figures = {}
    for target in ("check", "quick"):
        code, cpu, wall, printed = cpu_of(["make", "--no-print-directory", target], ROOT)
        figures[target] = {"exit": code, "cpu": cpu, "wall": wall, "last line": printed.strip().splitlines()[-1]}
    return figures


check.option("--now", "Compare CHECKOUT instead of this checkout (step same)", type=Path, metavar="CHECKOUT")

if __name__ == "__main__":
    check()
