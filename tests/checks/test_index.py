"""The index of checks is complete, and every check explains itself without data, models or a run."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKS = ROOT / "checks"
INDEX = (CHECKS / "README.md").read_text(encoding="utf-8")
RUNNABLE = sorted(path.stem for path in CHECKS.glob("*.py") if "__main__" in path.read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^(verify-[\w-]+):", MAKEFILE, re.MULTILINE)
GIVEN = [f"{name}=given" for name in re.findall(r"^FLAG_(\w+) =", MAKEFILE, re.MULTILINE)]
with_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def rows() -> list[list[str]]:
    """The rows of the index, cell by cell."""
    lines = [line for line in INDEX.splitlines() if re.match(r"\| [^|]+ \| `\w+\.py` ", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "--no-print-directory", *words], cwd=ROOT, capture_output=True, text=True)


def test_every_check_has_one_row_with_seven_cells():
    assert sorted(row[1] for row in rows()) == [f"`{name}.py`" for name in RUNNABLE]
    assert {len(row) for row in rows()} == {7}
    assert all(cell for row in rows() for cell in row)


def test_every_file_that_the_index_names_is_there():
    named = set(re.findall(r"`([\w/]+\.(?:py|jsonl|md))`", INDEX)) | set(re.findall(r"\]\(\.\./([^)]+)\)", INDEX))
    own = {name for name in named if not name.endswith(".jsonl")}
    assert len(own) > len(RUNNABLE)
    assert [name for name in sorted(own) if not (CHECKS / name).exists() and not (ROOT / name).exists()] == []


def test_every_target_is_in_the_index_and_every_target_of_the_index_is_there():
    assert set(re.findall(r"`(verify-[\w-]+)`", INDEX)) == set(TARGETS)


@with_make
def test_every_target_calls_checks_that_are_there():
    done = make("-n", *TARGETS, "gpu-day", "results", *GIVEN)
    assert done.returncode == 0, done.stderr
    called = set(re.findall(r"(checks/\w+\.py)", done.stdout))
    assert called == {f"checks/{name}.py" for name in RUNNABLE if name != "installed"}


@with_make
def test_a_target_that_lacks_something_says_what_to_type():
    done = make("verify-answers", "DATA=given", "MODELS=")
    assert done.returncode != 0
    assert "verify-answers needs MODELS. Type: make verify-answers DATA=PATH MODELS=PATH." in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", RUNNABLE)
def test_a_check_explains_itself_and_begins_with_its_question(name: str, capsys: pytest.CaptureFixture[str]):
    module = import_module(name)
    with pytest.raises(SystemExit) as stopped:
        (module.check if hasattr(module, "check") else module.main)(["--help"])
    assert stopped.value.code == 0
    question = module.__doc__.splitlines()[0]
    assert "?" in question
    assert question in capsys.readouterr().out


def test_no_check_looks_beside_the_repository():
    files = [*CHECKS.rglob("*.py"), CHECKS / "README.md", ROOT / "Makefile"]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    assert [name for name, text in texts.items() if re.search(r"\.\./shared|shared/data", text)] == []
