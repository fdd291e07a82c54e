"""How several conditions of one sample share one forward pass: the one place where reuse is decided.

A condition differs from the clean pass only from its first cut query on. So a sample becomes one row of *streams*:

    shared prefix | clean: the sample's own tokens | knockout: tokens from its first cut on | control: … | …
    (keys and values, computed once for all samples)

A stream's queries see the clean keys before its start, its own keys after it, and nothing of other streams. Every
distinct (token, condition) is computed once; nothing is approximated. A stream whose cut begins at a later layer (a
window, a single layer) joins the row at that layer with copies of the clean states, which until then are its own.

Within a row attention is computed between all slots, also those that do not see each other. A layer × layer map has a
stream for each layer, too many for one row: its late streams then take passes of their own, some layers' streams each,
which begin at the first of these layers from the states, keys and values that the clean pass left (`passes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anchorscope.knockout import NOTHING, Cut

PREFIX, PADDING = -1, -2  # streams of slots that are not a condition's own
ROW_SLOTS = 128  # of late streams in one row: more waste attention, fewer waste the clean keys' copies


Members = Sequence[Sequence[int]]
"""For each row the numbers of the streams that are part of a pass."""


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


@dataclass(frozen=True, eq=False)
class Layout:
    """A batch of rows of streams, laid out for one pass.

    Its tokens are **slots** of one flat list, in the order in which they join: norms, MLPs and projections see no
    padding. Attention sees rows: a row's slots side by side, padded at their end, and before their keys those computed
    earlier: the shared prefix's, and in a pass that begins at a later layer the clean stream's.
    """

    ids: NDArray[np.int64]
    """(slot,)"""
    places: NDArray[np.int64]
    """(slot,): the token's place in its sequence, which is its position id."""
    sources: NDArray[np.int64]
    """(slot,): for a slot that joins after layer 0, the clean slot it is a copy of; else 0."""
    grid: NDArray[np.int64]
    """(row, column): which slot stands there, ascending along a row; PADDING where none does."""
    streams: NDArray[np.int64]
    """(row, column): the stream a slot belongs to; PADDING where none does."""
    counts: tuple[int, ...]
    """(layer,): how many slots have joined. Where none has, one is there that nobody reads."""
    shared: int
    """Length of the shared prefix."""
    saved: int
    """How many columns the clean streams had in their own pass; 0 where they are part of this one."""
    rows: tuple[tuple[Stream, ...], ...]
    """The streams of each row, the clean one first."""
    columns: tuple[tuple[int, ...], ...]
    """The first column of each stream of each row; -1 where it is not part of this pass."""
    _uncut: dict[int | None, NDArray[np.bool_]] = field(default_factory=dict, repr=False)

    def slots(self, layer: int) -> int:
        """Slots at a layer, the one that nobody reads included."""
        return max(1, self.counts[layer])

    def rows_at(self, layer: int) -> NDArray[np.int64]:
        """(row, column): the slots attention sees at a layer; PADDING where none has joined."""
        joined = np.where(self.grid < self.slots(layer), self.grid, PADDING)
        width = int((joined != PADDING).sum(axis=1).max())
        return joined[:, :width]

    def slot(self, row: int, stream: int, place: int) -> int:
        """The slot of a place under a stream: its own, or before its start the clean one."""
        if place < self.rows[row][stream].start:
            stream = 0
        mine, column = self.rows[row][stream], self.columns[row][stream]
        if not mine.start <= place < mine.end or column < 0:
            raise ValueError(f"place {place} is not among the computed tokens of stream {stream}")
        return int(self.grid[row, column + place - mine.start])

    def visible(self, layer: int, window: int | None = None) -> NDArray[np.bool_]:
        """Which keys each query sees at a layer: (row, column, shared + saved + column)."""
        if window not in self._uncut:
            self._uncut[window] = self._without_cuts(window)
        before, there = self.shared + self.saved, self.rows_at(layer) != PADDING
        width = there.shape[1]
        seen = self._uncut[window][:, :width, : before + width].copy()
        if not there.all():  # who has not joined is neither seen nor sees
            seen[:, :, before:] &= there[:, None, :]
            seen &= there[:, :, None]
        places = self._keys()[1]
        for i, row in enumerate(self.rows):
            for stream, column in zip(row, self.columns[i], strict=True):
                if 0 <= column < width and stream.cut.keys and layer in stream.layers:
                    blind = stream.cut.blind_from(int(places[i].max()) + 1)[places[i, : before + width]]
                    seen[i, column : column + len(stream.ids)] &= np.arange(stream.start, stream.end)[:, None] < blind
        diagonal = np.arange(width)
        seen[:, diagonal, before + diagonal] = True  # padding sees itself: no row is empty
        return seen

    def _keys(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The streams and the places of all keys: (row, shared + saved + column) each."""
        rows = len(self.rows)
        saved = np.full((rows, self.saved), PADDING)
        for i, row in enumerate(self.rows if self.saved else ()):
            saved[i, : len(row[0].ids)] = 0
        streams = np.concatenate([np.full((rows, self.shared), PREFIX), saved, self.streams], axis=1)
        computed = np.broadcast_to(np.arange(self.shared + self.saved), (rows, self.shared + self.saved))
        places = np.where(self.grid == PADDING, 0, self.places[self.grid])
        return streams, np.concatenate([computed, places], axis=1)

    def _starts(self) -> NDArray[np.int32]:
        """(row, stream): where each stream starts."""
        found = np.zeros((len(self.rows), max(len(row) for row in self.rows)), dtype=np.int32)
        for i, row in enumerate(self.rows):
            found[i, : len(row)] = [stream.start for stream in row]
        return found

    def _without_cuts(self, window: int | None) -> NDArray[np.bool_]:
        """(row, column, shared + saved + column): what each query sees where nothing is cut."""
        streams, places = (each.astype(np.int32) for each in self._keys())
        before = self.shared + self.saved
        query_streams, query_places = streams[:, before:], places[:, before:]
        query_starts = np.take_along_axis(self._starts(), np.maximum(query_streams, 0), axis=1)
        seen: NDArray[np.bool_] = streams[:, None, :] == query_streams[:, :, None]
        seen &= places[:, None, :] <= query_places[:, :, None]
        clean = (streams == PREFIX) | (streams == 0)
        seen |= clean[:, None, :] & (places[:, None, :] < query_starts[:, :, None])
        if window is not None:
            seen &= query_places[:, :, None] - places[:, None, :] < window
        seen &= (query_streams != PADDING)[:, :, None]
        return seen


def lay_out(rows: Sequence[Sequence[Stream]], shared: int, layers: int, members: Members | None = None) -> Layout:
    """Lay rows of streams out for one pass.

    `members` are the streams of each row that are part of the pass; by default all. Without the clean ones, their
    states, keys and values are those of an earlier pass.
    """
    chosen = members if members is not None else [range(len(row)) for row in rows]
    if any(row[0].joins != 0 or row[0].start != shared for row in rows):
        raise ValueError("the first stream of a row is the clean one")
    clean = {0 in each for each in chosen}
    if len(clean) != 1:
        raise ValueError("the clean stream is part of a pass in all rows or in none")
    joining = sorted((rows[i][s].joins, i, s) for i, each in enumerate(chosen) for s in each)
    width = max(sum(len(row[s].ids) for s in each) for row, each in zip(rows, chosen, strict=True))
    grid, streams = (np.full((len(rows), width), PADDING, dtype=np.int64) for _ in range(2))
    columns, filled = [[-1] * len(row) for row in rows], [0] * len(rows)
    firsts = np.cumsum([0] + [len(row[0].ids) for row in rows])  # slot of each clean stream, in its own pass
    ids: list[int] = []
    places, sources = [], []
    for layer, i, s in joining:
        stream, slot, column = rows[i][s], len(ids), filled[i]
        block = slice(column, column + len(stream.ids))
        grid[i, block], streams[i, block] = np.arange(slot, slot + len(stream.ids)), s
        columns[i][s], filled[i] = column, block.stop
        own = np.arange(stream.start, stream.end)
        ids += stream.ids
        places.append(own)
        if clean == {True}:
            sources.append(grid[i, own - shared] if layer else 0 * own)  # the clean stream stands first in its row
        else:
            sources.append(firsts[i] + own - shared)
    counts = tuple(sum(len(rows[i][s].ids) for at, i, s in joining if at <= layer) for layer in range(layers))
    saved = 0 if clean == {True} else max(len(row[0].ids) for row in rows)
    every = tuple(tuple(row) for row in rows)
    return Layout(
        np.array(ids, dtype=np.int64),
        np.concatenate(places),
        np.concatenate(sources),
        grid,
        streams,
        counts,
        shared,
        saved,
        every,
        tuple(map(tuple, columns)),
    )


def passes(rows: Sequence[Sequence[Stream]], most: int = ROW_SLOTS) -> list[Members]:
    """Which streams of each row go through the model together. The clean ones are in the first pass.

    Late streams join the first pass where a row has at most `most` slots of them; else they take passes of their own,
    as many layers' streams in each as that allows, and at least one layer's.
    """
    late = sorted({stream.joins for row in rows for stream in row if stream.joins > 0})
    sizes = {at: max(sum(len(s.ids) for s in row if s.joins == at) for row in rows) for at in late}
    if sum(sizes.values()) <= most:
        return [[range(len(row)) for row in rows]]
    groups: list[set[int]] = [{0}]
    room = 0
    for at in late:
        if sizes[at] > room:
            groups.append(set())
            room = most
        groups[-1].add(at)
        room -= sizes[at]
    return [[[s for s, stream in enumerate(row) if stream.joins in group] for row in rows] for group in groups]
