"""Does the search of the documentation work in a folder that was opened without a server?

    python checks/docs_search.py

The site is built, its front page opened by file:// in a real browser ($CHROMIUM or /usr/bin/chromium, Node 20), and a
word typed into the search. Needs the extra docs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from helpers.browser import Browser
from helpers.steps import ROOT, Check, Figures, Options

check = Check(__doc__)

TYPED = """
(async () => {
  const input = document.querySelector("[data-md-component=search-query]");
  input.focus();
  input.value = WORD;
  for (const name of ["input", "keyup", "change"]) input.dispatchEvent(new Event(name, { bubbles: true }));
  const told = () => document.querySelector(".md-search-result__meta").textContent.trim();
  for (let turn = 0; turn < 100 && !/\\d/.test(told()); turn++) await new Promise((done) => setTimeout(done, 100));
  return { told: told(), pages: document.querySelectorAll(".md-search-result__item").length };
})()
"""


@check.step()
def search(options: Options, work: Path) -> Figures:
    """What the search says to a word of the method and to one that no page has."""
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(work / "site")]
    subprocess.run(words, cwd=ROOT, check=True)
    figures: Figures = {}
    with Browser() as browser:
        for word in ("knockout", "zyxwvut"):
            browser("open", word, file=str(work / "site" / "index.html"))
            figures[word] = browser.run(TYPED.replace("WORD", f'"{word}"'), word)
            figures[word]["errors"] = browser("log", word)["errors"]
    return figures


if __name__ == "__main__":
    check()
