"""A hook of mkdocs: the site is the repository's own Markdown, with links that lead to the same files.

Pages outside `docs/` (README, results …) become pages of the site at the same path, README as its front page. A link
is followed from where its page stands in the repository, to the file, to that file's place on the site; what a page
shows or links to comes along. So one text reads well on GitHub and here, and a link to nothing stops the build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
FRONT = "README.md"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^```(\w+)[^\n]*?\bfile=(\S+)[^\n]*$", re.MULTILINE)


def pages_elsewhere() -> list[str]:
    """Pages outside `docs/`, by their path in the repository."""
    results = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "results").rglob("*.md"))
    return [FRONT, "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "checks/README.md", "checks/gpu_day.md", *results]


def site_path(path: str) -> str:
    """Where a file of the repository is on the site."""
    return "index.md" if path == FRONT else path.removeprefix("docs/")


def in_repository(source: str) -> str:
    """Which file of the repository a page of the site is."""
    if source == "index.md":
        return FRONT
    return f"docs/{source}" if (ROOT / "docs" / source).is_file() else source


def target_of(page: str, link: str) -> str | None:
    """The file a link leads to, by its path in the repository; None for an address, or a place in the page."""
    if "://" in link or link.startswith(("#", "mailto:")):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link.partition("#")[0]))
    return f"{target}/README.md" if (ROOT / target).is_dir() else target


def links(page: str) -> list[str]:
    """The files a page links to or shows."""
    found = [target_of(page, match[2]) for match in LINK.finditer((ROOT / page).read_text(encoding="utf-8"))]
    return list(dict.fromkeys(target for target in found if target is not None))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Results that the navigation does not name come last among the results, under their own headings."""
    results = next(part["Results"] for part in config.nav or [] if isinstance(part, dict) and "Results" in part)
    named = {path for entry in results for path in entry.values()}
    results += [page for page in pages_elsewhere() if page.startswith("results/") and page not in named]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages outside `docs/`, and whatever any page links to."""
    inside = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    linked = [target for page in [*inside, *pages_elsewhere()] for target in links(page)]
    for path in dict.fromkeys([*pages_elsewhere(), *linked]):
        if path.startswith("docs/"):
            continue
        if not (ROOT / path).is_file():
            raise PluginError(f"a page links to {path}, which is not there")
        files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Links from file to file become links from page to page; a block that is a file says its name."""
    here = in_repository(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        target = target_of(here, match[2])
        if target is None:
            return match[0]
        _, sign, place = match[2].partition("#")
        start = posixpath.dirname(page.file.src_uri) or "."
        return f"{match[1]}{posixpath.relpath(site_path(target), start)}{sign}{place}{match[3]}"

    return FENCE.sub(r'```\1 title="\2"', LINK.sub(moved, markdown))
