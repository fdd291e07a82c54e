"""A report read back as a browser does it: its JSON, and its columns as arrays."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np

from anchorscope.report.page.pack import KINDS

TYPES = {name: kind for kind, name in KINDS.items()}
MISSING = -32768


def block(html: str, name: str) -> str:
    (found,) = re.findall(rf'<script type="[^"]*" id="{name}">(.*?)</script>', html, re.DOTALL)
    return found


class Elements(HTMLParser):
    """Policies, the scripts that a browser would run, and attributes that hold a script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.policies: list[str] = []
        self.scripts: list[str] = []
        self.handlers: list[str] = []
        self.within = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.handlers += [name for name in given if name.startswith("on")]
        self.within = tag == "script" and "type" not in given
        if self.within:
            self.scripts.append("")
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policies.append(given["content"] or "")

    def handle_data(self, data: str) -> None:
        if self.within:
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.within = False


@dataclass(frozen=True)
class Opened:
    """A page."""

    about: dict[str, Any]
    content: bytes

    @classmethod
    def of(cls, html: str) -> Opened:
        return cls(json.loads(block(html, "about")), zlib.decompress(base64.b64decode(block(html, "columns"))))

    def column(self, number: int) -> np.ndarray:
        start, size, kind = self.about["columns"][number]
        return np.frombuffer(self.content, f"<{TYPES[kind]}", size, start)

    def texts(self, number: int) -> list[str]:
        whole = self.column(number).tobytes().decode().encode("utf-16-le")
        starts = 2 * self.column(number + 1).astype(int)
        return [whole[a:b].decode("utf-16-le") for a, b in pairwise(starts)]

    def lines(self) -> dict[tuple[int, int, int, str], dict[int, tuple[float, ...]]]:
        """By point, model, set and key: by layer, value, low, high and n."""
        c = self.about["curves"]
        names = ("point", "model", "set", "key", "first", "start")
        point, model, dataset, key, first, start = (self.column(c[name]) for name in names)
        value, low, high, size = (self.column(n) for n in c["numbers"])
        found = {}
        for i in range(len(point)):
            name = c["keys"][key[i]]
            scale = c["scales"][key[i]]
            rows = range(start[i], start[i + 1])
            found[int(point[i]), int(model[i]), int(dataset[i]), name] = {
                int(first[i]) + j: (*(np.nan if x[r] == MISSING else x[r] / scale for x in (value, low, high)), size[r])
                for j, r in enumerate(rows)
            }
        return found

    def sample(self, name: str) -> np.ndarray:
        return self.column(self.about["samples"]["columns"][name])

    def sample_texts(self, name: str) -> list[str]:
        return self.texts(self.about["samples"]["columns"][f"{name} text"])
