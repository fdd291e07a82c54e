"""README and docs are run: files are written, commands executed, output compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from anchorscope import __version__

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def squeeze(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def matches(shown: list[str], printed: list[str]) -> bool:
    """Whether the printed lines are the shown ones; a line `...` stands for any lines, `...` in one for any text."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(re.escape("..."), ".*") + r"\n" for line in shown
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_is_true(page: Path, tmp_path: Path):
    env = {**os.environ, "COLUMNS": "80", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    for language, info, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if name := re.search(r"file=(\S+)", info):
            (tmp_path / name[1]).write_text(body, encoding="utf-8")
        if language != "console":
            continue
        for command in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            line, _, shown = command.partition("\n")
            done = subprocess.run(line, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True)
            printed = done.stdout + done.stderr + (f"[exit {done.returncode}]\n" if done.returncode else "")
            assert matches(squeeze(shown), squeeze(printed)), f"$ {line}\n{printed}"


def test_pages_link_only_to_files_that_exist():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page.name} → {target}"


def test_version_and_citation_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert f"Version {__version__}" in (ROOT / "README.md").read_text()
