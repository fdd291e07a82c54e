"""Functions of the report's script, run by node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import anchorscope.report
from anchorscope.evidence.claim import HALF

SCRIPT = Path(anchorscope.report.__file__).parent / "templates" / "samples.js"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_middle_layer_is_that_of_the_ledger():
    found = re.search(r"^function middleLayer\(.*?^}", SCRIPT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found
    script = f"{found[0]}; console.log(JSON.stringify(Array.from({{length: 80}}, (_, n) => middleLayer(n + 1))))"
    said = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == [round((layers - 1) * HALF) for layers in range(1, 81)]
