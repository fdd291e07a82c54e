"""Columns as a page carries them: side by side in one block of bytes, deflated, as base64.

A page of 20,000 samples has millions of numbers; as JSON they would take several times the space, and seconds to parse.
Here a column is a typed array that the browser reads in place. Numbers with a known range are whole numbers of 16 bits,
and a text column is one long text with the places where its rows begin, counted as JavaScript counts characters.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = {
    "u1": "Uint8Array", "i2": "Int16Array", "u2": "Uint16Array", "i4": "Int32Array", "u4": "Uint32Array",
    "f4": "Float32Array",
}  # fmt: skip
"""What a column may be, and how JavaScript calls it."""
MISSING = -32768
"""Stands for a number that is not there, among whole numbers of 16 bits."""
ALIGNED = 8  # bytes: a typed array begins at a multiple of its item's size


class Pack:
    """Collects columns; each is known by its number."""

    def __init__(self) -> None:
        self.directory: list[list[int | str]] = []
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, values: NDArray[Any]) -> int:
        """A column of numbers, in the type that it has; several axes lie row by row."""
        kind = values.dtype.str[1:]
        if kind not in KINDS:
            raise ValueError(f"a column of {values.dtype} cannot be packed")
        content = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes()
        self.directory.append([self._size, values.size, KINDS[kind]])
        self._put(content)
        return len(self.directory) - 1

    def scaled(self, values: NDArray[Any], scale: float) -> int:
        """Numbers to the nearest 1 / scale, in 16 bits."""
        return self.add(whole(values, scale))

    def bits(self, values: NDArray[np.bool_]) -> int:
        """Yes or no, eight to a byte, the first in the lowest bit."""
        return self.add(np.packbits(values.ravel(), bitorder="little"))

    def texts(self, texts: Sequence[str]) -> int:
        """A text for each row; the column after this number holds where each begins."""
        clean = [text.encode("utf-8", "replace").decode() for text in texts]
        lengths = [len(text.encode("utf-16-le")) // 2 for text in clean]
        content = "".join(clean).encode()
        self.directory.append([self._size, len(content), "Uint8Array"])
        self._put(content)
        self.add(np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32))
        return len(self.directory) - 2

    def _put(self, content: bytes) -> None:
        padded = content + bytes(-len(content) % ALIGNED)
        self._parts.append(padded)
        self._size += len(padded)

    def text(self) -> str:
        return base64.b64encode(zlib.compress(b"".join(self._parts), 9)).decode()


def whole(values: NDArray[Any], scale: float) -> NDArray[np.int16]:
    """Numbers times a scale as whole ones of 16 bits; what is not finite is missing, what is beyond is cut off."""
    with np.errstate(invalid="ignore"):
        near = np.clip(np.rint(values * scale), MISSING + 1, -MISSING - 1)
    return np.where(np.isfinite(values), near, MISSING).astype(np.int16)


class SharedTexts:
    """Texts that many rows share: each is kept once, and rows hold its number."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._places.setdefault(text, len(self._places))

    @property
    def all(self) -> list[str]:
        return list(self._places)
