"""Words, colons and semicolons of Markdown pages.

**Words** are what `wc -w` counts: runs of characters between white space, in the whole file.

**Running text** is what a reader reads as sentences: paragraphs, list items, headings, texts of links and of pictures.
It leaves out front matter, HTML comments and tags, blocks of code, inline code, tables, mkdocstrings' `:::` lines,
targets of links, and addresses. Generated sentences count, generated tables do not.

**Marks** are colons and semicolons of the running text that end a word: white space, the end of the line, a closing
quote, a closing bracket or the end of emphasis follows them. So the colon of 10:30 is none.

**Rate** is the number of marks for every 100 words of running text. A word of running text has a letter or a digit.
"""

from __future__ import annotations

import html
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "checks/README.md")
FOLDERS = ("docs", "results")

_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1[`~]*[ ]*$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^ *(?:\||:::|\[[^\]]+\]: ).*$", re.MULTILINE)  # a table's, a directive's, a link's definition
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_TARGET = re.compile(r"\]\([^()]*(?:\([^()]*\)[^()]*)*\)|\]\[[^\]]*\]")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_ADDRESS = re.compile(r"\b(?:https?://|mailto:)[^\s)>\]]*[^\s)>\].,;:]")
_MARK = re.compile(r"[:;](?=[\s)\]*_'\"’”]|$)", re.MULTILINE)
_WORD = re.compile(r"\S*[^\W_]\S*")


@dataclass(frozen=True)
class Counts:
    """What was counted on one page, or on several together."""

    words: int
    """Words as `wc -w` counts them."""
    running: int
    """Words of running text."""
    marks: int
    """Colons and semicolons of running text."""

    @property
    def rate(self) -> float:
        """Marks for every 100 words of running text; 0 where there is none."""
        return 100 * self.marks / self.running if self.running else 0.0

    def record(self) -> dict[str, float]:
        """The counts as JSON has them."""
        return {"words": self.words, "running": self.running, "marks": self.marks, "rate": round(self.rate, 2)}


def running_text(page: str) -> str:
    """The text of a page that is read as sentences."""
    text = _COMMENT.sub(" ", _FENCE.sub("", _FRONT.sub("", page)))
    text = _CODE.sub(" ", _LINE.sub("", text))
    text = _TAG.sub(" ", _ADDRESS.sub(" ", _TARGET.sub("]", text)))
    return html.unescape(text)


def count(page: str) -> Counts:
    """Count one page."""
    text = running_text(page)
    return Counts(len(page.split()), len(_WORD.findall(text)), len(_MARK.findall(text)))


def together(counts: Iterable[Counts]) -> Counts:
    """The counts of several pages as one."""
    every = list(counts)
    return Counts(sum(c.words for c in every), sum(c.running for c in every), sum(c.marks for c in every))


def is_page(path: str) -> bool:
    """Whether a file, by its path in the repository, is one of the pages that are counted."""
    return path in PAGES or (path.endswith(".md") and path.partition("/")[0] in FOLDERS)


def pages_now(root: Path) -> dict[str, str]:
    """The pages of a folder with a checkout, by their path in it."""
    paths = [root / name for name in PAGES]
    paths += [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.md"))]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths if path.is_file()}


def pages_at(root: Path, commit: str) -> dict[str, str]:
    """The pages that a repository had at a commit, by their path in it."""
    listed = _git(root, "ls-tree", "-r", "--name-only", "-z", commit).split("\0")
    return {path: _git(root, "show", f"{commit}:{path}") for path in listed if is_page(path)}


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout
