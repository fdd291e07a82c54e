"""The index of checks is complete, each check says its question, and `make verify` finds it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKS = ROOT / "checks"
INDEX = (CHECKS / "README.md").read_text(encoding="utf-8")
RUNNABLE = sorted(path.stem for path in CHECKS.glob("*.py") if "__main__" in path.read_text(encoding="utf-8"))
with_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def rows() -> list[list[str]]:
    """The rows of the index, cell by cell."""
    lines = [line for line in INDEX.splitlines() if re.match(r"\| [^|]+ \| `\w+` ", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_check_has_one_row_with_six_cells():
    assert sorted(row[1] for row in rows()) == [f"`{name}`" for name in RUNNABLE]
    assert {len(row) for row in rows()} == {6}
    assert all(cell for row in rows() for cell in row)


def test_every_file_that_the_index_names_is_there():
    named = set(re.findall(r"`([\w/]+\.(?:py|md))`", INDEX)) | set(re.findall(r"\]\(\.\./([^)#]+)", INDEX))
    assert [name for name in sorted(named) if not (CHECKS / name).exists() and not (ROOT / name).exists()] == []


@pytest.mark.parametrize("name", RUNNABLE)
def test_a_check_begins_with_its_question(name: str):
    text = ast.get_docstring(ast.parse((CHECKS / f"{name}.py").read_text(encoding="utf-8")))
    assert "?" in text.splitlines()[0]


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "--no-print-directory", *words], cwd=ROOT, capture_output=True, text=True)


@with_make
def test_a_check_gets_the_options_that_are_given():
    done = make("-n", "verify", "CHECK=peak_memory", "DATA=there", "MODELS=", "OPTIONS=fit")
    assert done.stdout.split()[1:] == ["checks/peak_memory.py", "fit", "--data", "there"]


@with_make
def test_a_wrong_name_lists_the_names():
    done = make("verify", "CHECK=peak")
    assert done.returncode != 0
    assert set(RUNNABLE) <= set(re.findall(r"\w+", done.stderr))


def test_the_makefile_has_few_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert len(re.findall(r"^[a-z-]+:(?!=)", makefile, re.MULTILINE)) <= 12


def test_tests_checks_and_benchmarks_stand_by_themselves():
    """Tests import neither checks nor benchmarks, checks no tests, and benchmarks no checks."""
    folders = {name: ROOT / name for name in ("tests", "checks", "benchmarks")}
    own = {name: {path.stem for path in place.glob("*")} for name, place in folders.items()}
    for name, others in (("tests", ["checks", "benchmarks"]), ("checks", ["tests"]), ("benchmarks", ["checks"])):
        foreign = set().union(*(own[other] for other in others)) - own[name]
        for path in folders[name].rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
            modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
            assert not {module.split(".")[0] for module in modules} & foreign, path


def test_no_check_looks_beside_the_repository():
    files = [*CHECKS.rglob("*.py"), CHECKS / "README.md", ROOT / "Makefile"]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    assert [name for name, text in texts.items() if re.search(r"\.\./shared|shared/data", text)] == []
