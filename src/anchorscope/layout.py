"""How several conditions of one sample share one forward pass: the one place where reuse is decided.

A condition differs from the clean pass only from its first cut query on. So a sample becomes one row of *streams*:

    shared prefix | clean: the sample's own tokens | knockout: tokens from its first cut on | control: … | …
    (keys and values, computed once for all samples)

A stream's queries see the clean keys before its start, its own keys after it, and nothing of other streams. Every
distinct (token, condition) is computed once; nothing is approximated. A stream whose cut begins at a later layer (a
window, a single layer) joins the row at that layer with copies of the clean states, which until then are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.knockout import NEVER, NOTHING, Cut

PREFIX, PADDING = -1, -2  # streams of slots that are not a condition's own


@dataclass(frozen=True)
class Stream:
    """One condition's own tokens in a row. Tokens are counted from the start of the sample's sequence, BOS included."""

    ids: tuple[int, ...]
    """The tokens that are computed for it."""
    start: int
    """The place of the first of them. Places before it are the clean stream's."""
    cut: Cut = NOTHING
    layers: range = range(0)
    """The layers in which the cut holds. The stream joins the row at the first of them."""

    @property
    def joins(self) -> int:
        """The layer at which it joins the row."""
        return self.layers.start if self.cut.keys else 0

    @property
    def end(self) -> int:
        """One past its last place."""
        return self.start + len(self.ids)


def clean_stream(ids: Sequence[int], shared: int) -> Stream:
    """The sample as it is; its first `shared` tokens are the shared prefix."""
    return Stream(tuple(ids[shared:]), shared)


def cut_stream(ids: Sequence[int], shared: int, cut: Cut, layers: range) -> Stream:
    """The same sample under a cut, from its first changed token on.

    The last token is computed at least, so that an empty cut is a pass like any other.
    """
    start = min(max(cut.first, shared), len(ids) - 1)
    return Stream(tuple(ids[start:]), start, cut, layers)


@dataclass(frozen=True)
class Layout:
    """A batch of rows, laid out. A slot is a column of the batch; the shared prefix has its own before them."""

    ids: NDArray[np.int64]
    """(row, slot)"""
    places: NDArray[np.int64]
    """(row, slot): the token's place in its sequence, which is its position id; 0 where padded."""
    streams: NDArray[np.int64]
    """(row, slot): the stream a slot belongs to; PADDING where padded."""
    widths: tuple[int, ...]
    """(layer,): how many slots there are at each layer."""
    sources: NDArray[np.int64]
    """(row, slot): for a slot that joins after layer 0, the clean slot it is a copy of; else 0."""
    shared: int
    """Length of the shared prefix."""
    rows: tuple[tuple[Stream, ...], ...]
    """The streams of each row, the clean one first."""

    def slot(self, row: int, stream: int, place: int) -> int:
        """The slot of a place under a stream: its own, or before its start the clean one."""
        if place < self.rows[row][stream].start:
            stream = 0
        found = np.flatnonzero((self.streams[row] == stream) & (self.places[row] == place))
        if len(found) != 1:
            raise ValueError(f"place {place} is not among the computed tokens of stream {stream}")
        return int(found[0])

    def visible(self, layer: int, window: int | None = None) -> NDArray[np.bool_]:
        """Which keys each query sees at a layer: (row, slot, shared + slot)."""
        width = self.widths[layer]
        streams, places = self.streams[:, :width], self.places[:, :width]
        rows = len(self.rows)
        key_streams = np.concatenate([np.full((rows, self.shared), PREFIX), streams], axis=1)[:, None, :]
        key_places = np.concatenate(
            [np.broadcast_to(np.arange(self.shared), (rows, self.shared)), places], axis=1
        )[:, None, :]  # fmt: skip
        query_streams, query_places = streams[:, :, None], places[:, :, None]

        starts, blind = self._starts(), self._blind(layer)
        row = np.arange(rows)[:, None, None]
        index = np.maximum(query_streams, 0)
        own = (key_streams == query_streams) & (key_places <= query_places)
        before = ((key_streams == PREFIX) | (key_streams == 0)) & (key_places < starts[row, index])
        seen: NDArray[np.bool_] = (own | before) & (query_places < blind[row, index, key_places])
        if window is not None:
            seen &= query_places - key_places < window
        seen &= query_streams != PADDING
        diagonal = np.arange(width)
        seen[:, diagonal, self.shared + diagonal] = True  # padding sees itself: no row is empty
        return seen

    def _starts(self) -> NDArray[np.int64]:
        """(row, stream): where each stream starts."""
        found = np.zeros((len(self.rows), max(len(row) for row in self.rows)), dtype=np.int64)
        for i, row in enumerate(self.rows):
            found[i, : len(row)] = [stream.start for stream in row]
        return found

    def _blind(self, layer: int) -> NDArray[np.int64]:
        """(row, stream, place): the first query of a stream that does not see a place at this layer."""
        length = 1 + max(stream.end for row in self.rows for stream in row)
        found = np.full((len(self.rows), max(len(row) for row in self.rows), length), NEVER)
        for i, row in enumerate(self.rows):
            for s, stream in enumerate(row):
                if stream.cut.keys and layer in stream.layers:
                    found[i, s] = stream.cut.blind_from(length)
        return found


def lay_out(rows: Sequence[Sequence[Stream]], shared: int, layers: int) -> Layout:
    """Lay rows of streams out as one batch: streams that join at the same layer stand together, padded at their end."""
    joins = sorted({stream.joins for row in rows for stream in row})
    if joins[0] != 0 or any(row[0].joins != 0 or row[0].start != shared for row in rows):
        raise ValueError("the first stream of a row is the clean one")
    blocks = []  # of slots, one per layer at which streams join
    for layer in joins:
        members = [[(s, stream) for s, stream in enumerate(row) if stream.joins == layer] for row in rows]
        blocks.append((layer, members, max(sum(len(stream.ids) for _, stream in each) for each in members)))
    width = sum(size for _, _, size in blocks)
    ids, places, sources = (np.zeros((len(rows), width), dtype=np.int64) for _ in range(3))
    streams = np.full((len(rows), width), PADDING, dtype=np.int64)
    first = 0
    for layer, members, size in blocks:
        for i, each in enumerate(members):
            slot = first
            for s, stream in each:
                block = slice(slot, slot + len(stream.ids))
                ids[i, block], streams[i, block] = stream.ids, s
                places[i, block] = np.arange(stream.start, stream.end)
                if layer > 0:
                    # the clean stream stands first in the first block
                    sources[i, block] = places[i, block] - shared
                slot = block.stop
        first += size
    widths = tuple(sum(size for layer, _, size in blocks if layer <= at) for at in range(layers))
    return Layout(ids, places, streams, widths, sources, shared, tuple(tuple(row) for row in rows))
