"""The tests of what was changed: `pytest -p of_changes` keeps those whose file, or whose subject, differs from main.

A test file is kept if it was changed, imports a changed module by name, or has the folder of a changed room.
Tests marked `slow` (whole runs) are kept only where their own file was changed: `make check` runs them all.
A changed helper of tests counts for every file that imports it.
"""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE, TESTS, TOOLS = ROOT / "src", ROOT / "tests", ROOT / "docs" / "tools"


def changed_files() -> set[Path]:
    """What differs from main, committed or not, and what is new; on main itself, from its last commit."""

    def git(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")

    base = git("merge-base", "main", "HEAD")[0]
    names = [*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")]
    return {ROOT / name for name in names if name}


def module_of(path: Path) -> str | None:
    """The name under which a file is imported: `anchorscope.store.table`, `tiny`, `devices.operations` or `found`."""
    if path.suffix == ".py":
        for place in (SOURCE, TESTS, TOOLS):
            if path.is_relative_to(place):
                return ".".join(path.relative_to(place).with_suffix("").parts).removesuffix(".__init__")
    return None


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def concerns(path: Path, changed: set[Path]) -> bool:
    """Whether a test file is about one of the changed files."""
    modules = {name for name in map(module_of, changed) if name}
    rooms = {file.relative_to(SOURCE / "anchorscope").parts[0] for file in changed if file.is_relative_to(SOURCE)}
    return path in changed or path.parent.name in rooms or bool(imports_of(path) & modules)


@pytest.hookimpl(trylast=True)  # when conftest.py has said which are slow
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    changed = changed_files()
    about = {path: concerns(path, changed) for path in {item.path for item in items}}
    kept = [
        item for item in items if about[item.path] and (item.path in changed or item.get_closest_marker("slow") is None)
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept
