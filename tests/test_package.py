"""What the design asks of the code as a whole."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import anchorscope

SOURCE = Path(anchorscope.__file__).parent
ROOT = Path(__file__).parents[1]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


ROOMS = ["questions", "answers", "grades", "spans", "traces", "probes", "evidence", "detectors"]


def test_every_pipeline_room_has_the_same_two_doors():
    for room in ROOMS:
        assert {"record.py", "stage.py"} <= {path.name for path in (SOURCE / room).iterdir()}, room


def test_no_room_loops_over_shards():
    loops = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "for shard in" in line and "plan.shards" in line
    }
    # the engine, and what reads tables and files of activations
    assert loops == {
        "detectors/tables.py",
        "run/ray/planner.py",
        "store/fill.py",
        "store/table.py",
        "traces/activations.py",
    }


def test_a_class_name_stands_for_one_thing():
    places: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), set()).add(path.relative_to(SOURCE).as_posix())
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_the_versions_of_transformers_are_the_same_in_all_texts():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    bounds = re.search(r'"transformers>=([\d.]+),<5\.(\d+)"', project)
    assert bounds, "pyproject.toml has a lower and an upper bound"
    supported = f"transformers {bounds[1]} to 5.{int(bounds[2]) - 1}"
    assert supported in (ROOT / "README.md").read_text(encoding="utf-8")


def records(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """Dataclasses and named tuples."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            made = [ast.unparse(each) for each in (*node.decorator_list, *node.bases)]
            if any(name.startswith(("dataclass", "NamedTuple")) for name in made):
                yield node


def test_every_column_of_a_table_is_documented_by_the_text_under_it():
    """Records become columns of tables. `tests/study` asks the same of the fields of a study."""
    fields = 0
    for path in SOURCE.glob("*/record.py"):
        for record in records(ast.parse(path.read_text(encoding="utf-8"))):
            for field, below in zip(record.body, [*record.body[1:], None], strict=True):
                if isinstance(field, ast.AnnAssign):
                    fields += 1
                    said = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
                    assert said, f"{path}: {record.name}.{ast.unparse(field.target)}"
    assert fields > 100


def test_every_public_name_and_its_methods_are_documented():
    for name in anchorscope.__all__:
        thing = getattr(anchorscope, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name
        if inspect.isclass(thing) and thing.__module__.startswith("anchorscope"):
            for member, value in vars(thing).items():
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    assert inspect.getdoc(value), f"{name}.{member}"


@pytest.mark.parametrize(
    "module", ["anchorscope", "anchorscope.cli", "anchorscope.run.status", "anchorscope.report.figures"]
)
def test_what_needs_no_model_loads_no_torch(module: str):
    script = f"import {module}, sys; print(*(m for m in ('torch', 'transformers', 'sklearn') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == ""


def test_no_pickle_is_read_or_written():
    for path in SOURCE.rglob("*.py"):
        assert not imports(path) & {"pickle", "joblib", "dill", "cloudpickle"}, path


def test_public_names_are_there():
    for name in anchorscope.__all__:
        assert hasattr(anchorscope, name)
    assert (SOURCE / "py.typed").exists()


def test_every_dependency_is_explained():
    """By the comment behind it, which says what it does here."""
    project = (ROOT / "pyproject.toml").read_text()
    lists = project[project.index("dependencies = [") : project.index("[project.scripts]")]
    named = [line for line in lists.splitlines() if '"' in line.partition("#")[0]]
    assert {"torch", "ray", "ruff"} <= set(re.findall(r'"([a-z]+)', "".join(named)))
    assert [line for line in named if not re.search(r"# \S", line)] == []
