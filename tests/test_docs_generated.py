"""Tables of columns, stages, charts, claims and detectors in docs/ are what the code says."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "docs" / "tools"


def test_generated_blocks_are_what_the_code_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(TOOLS)
    assert list(import_module("generate").outdated()) == [], "run: python docs/tools/generate.py"
