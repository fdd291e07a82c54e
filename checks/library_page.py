"""Does docs/howto/python.md print what it shows, with the real model?

    python checks/library_page.py --data DIR --models DIR

Every Python block of the page is carried out with SmolLM2-135M, and what it prints is compared with the page. The tests
do the same with a tiny model, whose numbers differ (tests/test_docs.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from helpers.steps import ROOT, Check, Figures, Options
from weights import unpacked

check = Check(__doc__)

BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


@check.step("data", "models")
def page(options: Options, work: Path) -> Figures:
    """Carry out the blocks and compare what they print."""
    model = str(unpacked("smollm2-135m", options.models))
    text = (ROOT / "docs" / "howto" / "python.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(text.replace(MODEL, model))
    python = [body for language, body in blocks if language == "python"]
    (work / "page.py").write_text("\n".join(f"print('=== {n}')\n{body}" for n, body in enumerate(python)))
    (work / "qa").symlink_to(options.data)
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "page.py"], cwd=work, env=env, capture_output=True, text=True)
    printed = dict(re.findall(r"^=== (\d+)\n(.*?)(?=^=== |\Z)", done.stdout, re.MULTILINE | re.DOTALL))
    shown: dict[str, str] = {}
    number = -1
    for language, body in blocks:
        number += language == "python"
        if language == "text":
            shown[str(number)] = body
    wrong = {n: printed.get(n, "") for n, text in shown.items() if printed.get(n, "").strip() != text.strip()}
    lines = [len([line for line in body.splitlines() if line.strip()]) for body in python]
    return {"exit": done.returncode, "blocks": len(python), "longest": max(lines), "shown": len(shown), "wrong": wrong}


if __name__ == "__main__":
    check()
