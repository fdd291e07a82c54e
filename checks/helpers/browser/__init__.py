"""A real browser, driven from Python: each call is one step of drive.mjs, which speaks to Chromium.

    with Browser() as browser:
        times = browser("open", file="report.html", width=1400, scheme="dark")
        browser("click", selector="nav [data-tab=explorer]")
        print(browser("evaluate", expression="window.anchorscope.count()"), browser("log")["errors"])

Which steps there are, and what they take and give, is said in drive.mjs. Without a window: Chromium runs headless.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

DRIVER = Path(__file__).parent / "drive.mjs"


class BrowserError(Exception):
    """A step could not be carried out."""


class Browser:
    """One browser, with as many tabs as are opened in it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["node", str(DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def __call__(self, do: str, page: str = "main", **step: Any) -> Any:
        """Carry out one step in a tab; what it gives."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, "page": page, **step}, default=str) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise BrowserError(f"the driver ended during '{do}' (exit code {self.process.wait()})")
        result = json.loads(line)
        if not result["ok"]:
            raise BrowserError(f"{do} {step}: {result['error']}")
        return result["value"]

    def run(self, expression: str, page: str = "main") -> Any:
        """The value of a JavaScript expression in a tab, awaited."""
        return self("evaluate", page, expression=expression)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()  # the driver then closes the browser
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
