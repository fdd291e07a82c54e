"""docs/notebook.ipynb: its cells run on a tiny model, and the file holds these cells with the output of a real one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from conftest import in_process
from speaker import make_speaker
from whole import only_svg

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool() -> Any:
    sys.path.insert(0, str(ROOT / "docs" / "tools"))
    try:
        return import_module("notebook")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def saved() -> dict[str, Any]:
    return json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))


def shell(words: Sequence[str]) -> str:
    done = in_process(*words[1:])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_cells_run_on_a_tiny_model(tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_speaker(tmp_path / "speaker")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with only_svg():
        outputs = list(tool.execute(tool.CELLS, str(tmp_path / "speaker"), shell))
    assert len(outputs) == sum(cell.kind == "code" for cell in tool.CELLS)
    pictures = [one for each in outputs for one in each if "image/png" in one.get("data", {})]
    assert len(pictures) == 3
    text = tool.notebook(tool.CELLS, outputs)
    assert [cell["cell_type"] for cell in json.loads(text)["cells"]] == [cell.kind for cell in tool.CELLS]
    assert "| " in "".join(outputs[-1][0]["text"])  # two verdicts


def test_the_file_holds_these_cells(tool: Any, saved: dict[str, Any]):
    assert [("".join(cell["source"]), cell["cell_type"]) for cell in saved["cells"]] == [
        (cell.source, cell.kind) for cell in tool.CELLS
    ], "run: python docs/tools/notebook.py (--keep if only texts changed)"
    written = (ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8")
    assert tool.notebook(tool.CELLS, tool.kept_outputs(tool.CELLS)) == written


def test_the_file_holds_the_output_of_every_cell(saved: dict[str, Any]):
    code = [cell for cell in saved["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert [bool(cell["outputs"]) for cell in code] == [number > 0 for number in range(len(code))]  # the first is quiet
    kinds = {one["output_type"] for cell in code for one in cell["outputs"]}
    assert kinds == {"stream", "execute_result"}
    written = json.dumps(saved["cells"])
    for place in ("/work/", "/tmp/", "/home/", "/root/"):
        assert place not in written


def test_outputs_are_not_kept_for_other_code(tool: Any):
    with pytest.raises(SystemExit, match="without --keep"):
        tool.kept_outputs([*tool.CELLS, tool.Cell("code", "1 + 1")])


def test_no_other_command_is_run(tool: Any):
    with pytest.raises(ValueError, match="no command but anchorscope"):
        tool.run_command(["rm", "x"])
