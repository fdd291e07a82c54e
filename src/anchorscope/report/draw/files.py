"""A figure as files, with its description in words inside: the same numbers give the same bytes, in every format."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Mapping
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from matplotlib.figure import Figure

from anchorscope.report.draw.lines import DPI
from anchorscope.store.files import write_bytes

# no dates: the same numbers give the same bytes
FORMATS: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
# where PNG and PDF have a place for the description; SVG has an element
DESCRIBED = {"png": "Description", "pdf": "Subject"}


def write_contents(folder: Path, name: str, contents: Mapping[str, bytes]) -> list[Path]:
    """Write the files of one chart, one for each suffix."""
    paths = [folder / f"{name}.{suffix}" for suffix in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_bytes(path, content)
    return paths


def saved_as(figure: Figure, description: str = "", only: Collection[str] | None = None) -> dict[str, bytes]:
    """The figure in every format, or `only` in some; each carries the description, for who does not see the picture."""
    contents = {}
    for suffix, metadata in FORMATS.items():
        if only is not None and suffix not in only:
            continue
        stream = io.BytesIO()
        entry = {DESCRIBED[suffix]: description} if description and suffix in DESCRIBED else {}
        figure.savefig(stream, format=suffix, dpi=DPI, metadata={**metadata, **entry})
        contents[suffix] = stream.getvalue()
    if description and "svg" in contents:
        contents["svg"] = _described(contents["svg"], description)
    return contents


def _described(svg: bytes, description: str) -> bytes:
    """The SVG as an image that screen readers name by the description's first sentence, and can read out in full."""
    identity = f"description-{hashlib.sha256(description.encode()).hexdigest()[:12]}"  # one page may show several
    name = quoteattr(description.partition(". ")[0])
    head, tag, rest = svg.partition(b"<svg ")
    attributes, _, body = rest.partition(b">")
    spoken = f' role="img" aria-label={name} aria-describedby="{identity}"'
    element = f'\n <desc id="{identity}">{escape(description)}</desc>'
    return head + tag + attributes + spoken.encode() + b">" + element.encode() + body
