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
from hub_server import Hub, Repo

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


LIBRARY = ROOT / "docs" / "library.md"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.mark.transformers
def test_the_library_page_runs(hub: Hub, tmp_path: Path):
    """Every block, one after the other, with a tiny model under the name of the page's."""
    from speaker import make_speaker, write_sets

    speaker = make_speaker(tmp_path / "speaker")
    write_sets(speaker, tmp_path / "qa", count=80)
    files = {path.name: path.read_bytes() for path in (tmp_path / "speaker").iterdir()}
    hub.repos[f"models/{MODEL}"] = Repo(files)
    blocks = [body for language, _, body in BLOCK.findall(LIBRARY.read_text(encoding="utf-8")) if language == "python"]
    smaller = "\n".join(blocks).replace("{12: [0, 1], 13: [4]}", "{1: [0, 1], 2: [3]}")  # it has three layers
    (tmp_path / "page.py").write_text(smaller.replace("range(10, 20)", "range(1, 2)"))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    env |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "page.py"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    refusals = BLOCK.findall(LIBRARY.read_text(encoding="utf-8"))[-1][2]
    assert done.stdout.endswith(refusals)
    for picture in ("frankenstein.png", "auroc.png", "mine.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


def test_what_a_researcher_tries_first_takes_ten_lines_at_most():
    blocks = [body for language, _, body in BLOCK.findall(LIBRARY.read_text(encoding="utf-8")) if language == "python"]
    assert len(blocks) >= 10
    assert all(len([line for line in body.splitlines() if line.strip()]) <= 10 for body in blocks)


def test_pages_link_only_to_files_that_exist():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page.name} → {target}"


def test_version_and_citation_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert f"Version {__version__}" in (ROOT / "README.md").read_text()
