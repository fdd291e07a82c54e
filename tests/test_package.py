"""What the design asks of the code as a whole."""

from __future__ import annotations

import ast
import re
from pathlib import Path

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


def test_nothing_imports_the_command_line_and_no_stage_the_engine():
    for path in SOURCE.rglob("*.py"):
        used = imports(path)
        assert "cli" in path.parts or not any(name.startswith("anchorscope.cli") for name in used), path
        if not {"cli", "engine"} & set(path.parts):
            assert not any(name.startswith("anchorscope.engine") for name in used), path


def test_no_pickle_is_read_or_written():
    for path in SOURCE.rglob("*.py"):
        assert not imports(path) & {"pickle", "joblib", "dill", "cloudpickle"}, path


def test_files_stay_readable():
    for path in SOURCE.rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 400, path
        assert not lines or lines[0].startswith('"""'), f"{path} does not say what it is"


def test_public_names_are_there():
    for name in anchorscope.__all__:
        assert hasattr(anchorscope, name)
    assert (SOURCE / "py.typed").exists()


def test_every_dependency_is_explained():
    project = (ROOT / "pyproject.toml").read_text()
    lists = project[project.index("dependencies = [") : project.index("[project.scripts]")]
    names = {re.split(r"[\[>=]", name)[0].lower() for name in re.findall(r'"([^"]+)"', lists)}
    assert {"torch", "ray", "ruff"} <= names
    decisions = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8").lower()
    explained = set(re.findall(r"[\w-]+", " ".join(re.findall(r"^\| ([^|]+) \|", decisions, re.MULTILINE))))
    assert names <= explained
