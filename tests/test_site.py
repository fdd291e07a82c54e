"""The documentation site: its drawing is drawn by its script, and it builds without a warning."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import yaml

import anchorscope

ROOT = Path(__file__).parents[1]
BUILDS = find_spec("mkdocs") is not None and (ROOT / "results").is_dir()


def tool(name: str) -> ModuleType:
    spec = spec_from_file_location(f"docs_{name}", ROOT / "docs" / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_drawing_is_what_its_script_draws():
    drawn = tool("pipeline").drawing()
    assert (ROOT / "docs" / "pipeline.svg").read_text(encoding="utf-8") == drawn, "run: python docs/tools/pipeline.py"
    ElementTree.fromstring(drawn)


def test_the_drawing_has_four_boxes_inside_the_picture():
    pipeline = tool("pipeline")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", pipeline.drawing())
    assert [words.split()[-1] for words in texts if words[:1].isdigit()] == ["Ask", "Cut", "Read", "Judge"]
    _, _, width, height = map(float, re.findall(r'viewBox="([^"]*)"', pipeline.drawing())[0].split())
    for x, y, w, h in re.findall(r'<rect x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)"', pipeline.drawing()):
        assert float(x) >= 0
        assert float(x) + float(w) <= width
        assert float(y) + float(h) <= height


def test_the_drawings_are_what_their_script_draws():
    drawings = tool("drawings")
    for name, draw in drawings.DRAWINGS.items():
        drawn = draw()
        shown = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert shown == drawn, "run: python docs/tools/drawings.py"
        root = ElementTree.fromstring(drawn)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        for box in root.iter("{http://www.w3.org/2000/svg}rect"):
            x, y, w, h = (float(box.attrib[side]) for side in ("x", "y", "width", "height"))
            assert x >= 0
            assert y >= 0
            assert x + w <= width
            assert y + h <= height


def named(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for each in (nav.values() if isinstance(nav, dict) else nav) for page in named(each)]  # type: ignore[attr-defined]


def test_every_page_has_its_place_on_the_site():
    pages = named(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    inside = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert len(pages) == len(set(pages))
    assert inside <= set(pages)


def test_the_reference_has_every_public_name():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    names = re.findall(r"^::: anchorscope\.(\w+)$", page, re.MULTILINE)
    assert sorted(names) == sorted(set(anchorscope.__all__) - {"__version__"})


@pytest.mark.skipif(not BUILDS, reason="the extra docs is not installed, or this is a source archive without results")
def test_links_lead_to_the_same_file_here_and_on_the_site():
    links = tool("links")
    assert (
        links.target_of("docs/detectors.md", "../results/small-models/README.md#x") == "results/small-models/README.md"
    )
    assert links.target_of("results/small-models/README.md", "../../docs/answers.md") == "docs/answers.md"
    assert links.target_of("docs/method.md", "#bands") is None
    assert links.target_of("docs/method.md", "https://example.org/a.md") is None
    assert links.site_path("docs/howto/report.md") == "howto/report.md"
    assert links.site_path("README.md") == "index.md"
    for page in ("README.md", "docs/method.md", "results/small-models/appendix.md"):
        assert links.in_repository(links.site_path(page)) == page


@pytest.mark.skipif(not BUILDS, reason="the extra docs is not installed, or this is a source archive without results")
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=[\"']?(https?:)?//", text)
        styles = re.findall(r"<link[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*https?://", text)
        assert not loaded, page.name
        assert not styles, page.name
    pictures = {path.name for path in (tmp_path / "site" / "results" / "small-models").glob("*.png")}
    assert {"delta_p.png", "nulls.png", "ledger.png"} <= pictures
