"""Fill the generated blocks of the pages from the code and from results, so that no page repeats them by hand.

A block stands between `<!-- generated: NAME -->` and `<!-- end -->`. NAME is a function of blocks.py, with arguments.
    python docs/tools/generate.py           # rewrite the pages
    python docs/tools/generate.py --check   # exit with 1 and name the pages that differ from the code
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from blocks import BLOCKS

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- generated: ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """A page with its blocks filled anew."""

    def block(match: re.Match[str]) -> str:
        name, *arguments = match[2].split()
        return f"{match[1]}\n{BLOCKS[name](*arguments)}\n\n{match[3]}"

    anew, blocks = BLOCK.subn(block, page)
    if blocks != page.count("<!-- generated:"):
        raise ValueError("a generated block has no <!-- end -->")
    return anew


def outdated() -> dict[str, str]:
    """The pages that differ from the code, each with the text it should have."""
    places = [
        ROOT / "README.md",
        ROOT / "llms.txt",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "results").rglob("*.md")),
    ]
    pages = {path: path.read_text(encoding="utf-8") for path in places}
    return {path.relative_to(ROOT).as_posix(): filled(text) for path, text in pages.items() if filled(text) != text}


if __name__ == "__main__":
    different = outdated()
    if "--check" in sys.argv[1:] and different:
        sys.exit(f"differ from the code: {', '.join(different)}. Run: python docs/tools/generate.py")
    for name, text in different.items():
        (ROOT / name).write_text(text, encoding="utf-8")
