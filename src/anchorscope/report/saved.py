"""A figure as files: the same numbers give the same bytes, in every format."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from anchorscope.report.drawing import DPI
from anchorscope.store.files import write_bytes

# no dates: the same numbers give the same bytes
FORMATS: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def write_contents(folder: Path, name: str, contents: Mapping[str, bytes]) -> list[Path]:
    """Write the files of one chart, whole each, by suffix."""
    paths = [folder / f"{name}.{suffix}" for suffix in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_bytes(path, content)
    return paths


def saved_as(figure: Figure) -> dict[str, bytes]:
    """The figure in every format."""
    contents = {}
    for suffix, metadata in FORMATS.items():
        stream = io.BytesIO()
        figure.savefig(stream, format=suffix, dpi=DPI, metadata=metadata)
        contents[suffix] = stream.getvalue()
    return contents
