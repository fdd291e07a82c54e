"""How several conditions of one sample share one forward pass: the one place where reuse is decided.

A condition differs from the clean pass only from its first cut query on. So a sample becomes a row of *streams*:

    shared prefix | clean: the sample's own tokens | knockout: tokens from its first cut on | control: … | …
    (keys and values, computed once for all samples)

A stream's queries see the clean keys before its start, its own keys after it, and nothing of other streams. Every
distinct (token, condition) is computed once; nothing is approximated. A stream whose cut begins at a later layer (a
window, a single layer) joins at that layer with copies of the clean states, which until then are its own.

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
ROW_SLOTS = 256  # of a sample's late streams in one pass: more waste attention, fewer waste copies of clean keys
SLOTS, COLUMNS = 64, 16  # lengths of the flat list and widths of its rows are multiples of these

Members = Sequence[Sequence[int]]
"""For each sample which of its streams are part of a pass."""


@dataclass(frozen=True)
class Stream:
    """One condition's own tokens. Tokens are counted from the start of the sample's sequence, BOS included."""

    ids: tuple[int, ...]
    """The tokens that are computed for it."""
    start: int
    """The place of the first of them. Places before it are the clean stream's."""
    cut: Cut = NOTHING
    layers: range = range(0)
    """The layers in which the cut holds. The stream joins at the first of them."""

    @property
    def joins(self) -> int:
        """The layer at which it joins."""
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
    """A batch of samples, laid out for one pass.

    Its tokens are **slots** of one flat list, in the order in which they join: norms, MLPs and what else treats tokens
    one by one see no padding. Attention sees **rows**: samples side by side, as many as fit into the width of the
    longest, and before their keys those computed earlier: the shared prefix's, and in a pass that begins at a later
    layer the clean streams'.
    """

    ids: NDArray[np.int64]
    """(slot,)"""
    places: NDArray[np.int64]
    """(slot,): the token's place in its sequence, which is its position id."""
    streams: NDArray[np.int64]
    """(slot,): the number of its stream, counted through all samples."""
    sources: NDArray[np.int64]
    """(slot,): for a slot that joins after layer 0, the clean slot it is a copy of; else 0."""
    stands: NDArray[np.int64]
    """(slot, 2): the row and the column in which attention sees it."""
    grid: NDArray[np.int64]
    """(row, column): which slot stands there, ascending along a row; PADDING where none does."""
    saved: NDArray[np.int64]
    """(row, column): which of the clean slots of an earlier pass stands there; no columns in the clean pass itself."""
    counts: tuple[int, ...]
    """(layer,): how many slots have joined. Where none has, one is there that nobody reads."""
    shared: int
    """Length of the shared prefix."""
    samples: tuple[tuple[Stream, ...], ...]
    """The streams of each sample, the clean one first."""
    firsts: tuple[tuple[int, ...], ...]
    """The first slot of each stream of each sample; -1 where it is not part of this pass."""
    _uncut: dict[int | None, NDArray[np.bool_]] = field(default_factory=dict, repr=False)

    def slots(self, layer: int) -> int:
        """Slots at a layer, the one that nobody reads included."""
        return max(1, self.counts[layer])

    def filled(self, layer: int) -> int:
        """Slots at a layer with those that fill the list up: each new length costs a matrix product anew to prepare."""
        return _up(self.counts[layer], SLOTS) or 1

    def rows_at(self, layer: int) -> NDArray[np.int64]:
        """(row, column): the slots attention sees at a layer; PADDING where none has joined."""
        joined = np.where(self.grid < self.slots(layer), self.grid, PADDING)
        return joined[:, : _up(int((joined != PADDING).sum(axis=1).max()), COLUMNS)]

    def slot(self, sample: int, stream: int, place: int) -> int:
        """The slot of a place under a stream: its own, or before its start the clean one."""
        if place < self.samples[sample][stream].start:
            stream = 0
        mine, first = self.samples[sample][stream], self.firsts[sample][stream]
        if not mine.start <= place < mine.end or first < 0:
            raise ValueError(f"place {place} is not among the computed tokens of stream {stream}")
        return first + place - mine.start

    def clean_slots(self) -> NDArray[np.int64]:
        """The slots of the clean streams, sample after sample; later passes call them by their number here."""
        clean = [(sample[0], firsts[0]) for sample, firsts in zip(self.samples, self.firsts, strict=True)]
        return np.concatenate([np.arange(first, first + len(stream.ids)) for stream, first in clean])

    def visible(self, layer: int, window: int | None = None) -> NDArray[np.bool_]:
        """Which keys each query sees at a layer: (row, column, shared + saved + column)."""
        if window not in self._uncut:
            self._uncut[window] = self._without_cuts(window)
        before, there = self.shared + self.saved.shape[1], self.rows_at(layer) != PADDING
        width = there.shape[1]
        seen = self._uncut[window][:, :width, : before + width].copy()
        if not there.all():  # who has not joined is neither seen nor sees
            seen[:, :, before:] &= there[:, None, :]
            seen &= there[:, :, None]
        _, places = self._keys()
        for sample, firsts in zip(self.samples, self.firsts, strict=True):
            for stream, first in zip(sample, firsts, strict=True):
                if 0 <= first < self.slots(layer) and stream.cut.keys and layer in stream.layers:
                    row, column = self.stands[first]
                    blind = stream.cut.blind_from(int(places[row].max()) + 1)[places[row, : before + width]]
                    queries = np.arange(stream.start, stream.end)[:, None]
                    seen[row, column : column + len(stream.ids)] &= queries < blind
        diagonal = np.arange(width)
        seen[:, diagonal, before + diagonal] = True  # padding sees itself: no query is without a key
        return seen

    def _keys(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The streams and the places of all keys: (row, shared + saved + column) each."""
        shape = (len(self.grid), self.shared)
        streams, places = [np.full(shape, PREFIX)], [np.broadcast_to(np.arange(self.shared), shape)]
        if self.saved.shape[1]:
            clean = np.cumsum([0] + [len(sample) for sample in self.samples[:-1]])
            lengths = [len(sample[0].ids) for sample in self.samples]
            starts = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
            streams.append(_at(np.repeat(clean, lengths), self.saved))
            places.append(_at(self.shared + np.arange(len(starts)) - starts, self.saved))
        streams.append(_at(self.streams, self.grid))
        places.append(_at(self.places, self.grid))
        return np.concatenate(streams, axis=1).astype(np.int32), np.concatenate(places, axis=1).astype(np.int32)

    def _starts(self) -> NDArray[np.int32]:
        """(stream,): where each starts."""
        return np.array([stream.start for sample in self.samples for stream in sample], dtype=np.int32)

    def _without_cuts(self, window: int | None) -> NDArray[np.bool_]:
        """(row, column, shared + saved + column): what each query sees where nothing is cut."""
        streams, places = self._keys()
        before = self.shared + self.saved.shape[1]
        query_streams, query_places = streams[:, before:], places[:, before:]
        sizes = [len(sample) for sample in self.samples]
        clean = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes).astype(np.int32)[np.maximum(query_streams, 0)]
        start = self._starts()[np.maximum(query_streams, 0)]
        seen: NDArray[np.bool_] = streams[:, None, :] == query_streams[:, :, None]
        seen &= places[:, None, :] <= query_places[:, :, None]
        base = (streams[:, None, :] == PREFIX) | (streams[:, None, :] == clean[:, :, None])
        seen |= base & (places[:, None, :] < start[:, :, None])
        if window is not None:
            seen &= query_places[:, :, None] - places[:, None, :] < window
        seen &= (query_streams != PADDING)[:, :, None]
        return seen


def _up(count: int, step: int) -> int:
    """The next multiple."""
    return -(-count // step) * step


def _at(values: NDArray[np.int64], index: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values at an index; PADDING where that is."""
    return np.where(index == PADDING, PADDING, values[np.maximum(index, 0)])


def lay_out(samples: Sequence[Sequence[Stream]], shared: int, layers: int, members: Members | None = None) -> Layout:
    """Lay samples, each some streams, out for one pass.

    `members` are the streams of each sample that are part of the pass; by default all. Without the clean ones, their
    states, keys and values are those of an earlier pass.
    """
    chosen = members if members is not None else [range(len(sample)) for sample in samples]
    if any(sample[0].joins != 0 or sample[0].start != shared for sample in samples):
        raise ValueError("the first stream of a sample is the clean one")
    clean = {0 in each for each in chosen}
    if len(clean) != 1:
        raise ValueError("the clean stream is part of a pass in all samples or in none")
    row_of, width = _side_by_side(
        [sum(len(sample[s].ids) for s in each) for sample, each in zip(samples, chosen, strict=True)]
    )
    rows = max(row_of) + 1
    grid, filled = np.full((rows, _up(width, COLUMNS)), PADDING, dtype=np.int64), [0] * rows
    numbers = np.cumsum([0] + [len(sample) for sample in samples])
    earlier = np.cumsum([0] + [len(sample[0].ids) for sample in samples])
    firsts = [[-1] * len(sample) for sample in samples]
    ids: list[int] = []
    places, streams, sources, stands = [], [], [], []
    joining = sorted((samples[i][s].joins, i, s) for i, each in enumerate(chosen) for s in each)
    for layer, i, s in joining:
        stream, row = samples[i][s], row_of[i]
        own, columns = np.arange(stream.start, stream.end), filled[row] + np.arange(len(stream.ids))
        firsts[i][s] = len(ids)
        grid[row, columns] = len(ids) + np.arange(len(stream.ids))
        filled[row] += len(stream.ids)
        ids += stream.ids
        places.append(own)
        streams.append(np.full(len(own), numbers[i] + s))
        stands.append(np.stack([np.full(len(own), row), columns], axis=1))
        first = firsts[i][0] if clean == {True} else earlier[i]
        sources.append(first + own - shared if layer else 0 * own)
    saved = np.full((rows, 0), PADDING, dtype=np.int64)
    if clean == {False}:
        held = [[i for i, each in enumerate(chosen) if each and row_of[i] == row] for row in range(rows)]
        clean_slots = [np.concatenate([np.arange(earlier[i], earlier[i + 1]) for i in each]) for each in held]
        saved = np.full((rows, max(map(len, clean_slots))), PADDING, dtype=np.int64)
        for row, slots in enumerate(clean_slots):
            saved[row, : len(slots)] = slots
    return Layout(
        ids=np.array(ids, dtype=np.int64),
        places=np.concatenate(places),
        streams=np.concatenate(streams),
        sources=np.concatenate(sources),
        stands=np.concatenate(stands),
        grid=grid,
        saved=saved,
        counts=tuple(sum(len(samples[i][s].ids) for at, i, s in joining if at <= each) for each in range(layers)),
        shared=shared,
        samples=tuple(tuple(sample) for sample in samples),
        firsts=tuple(tuple(each) for each in firsts),
    )


def _side_by_side(lengths: Sequence[int]) -> tuple[list[int], int]:
    """The row of each sample, and their width, that of the longest: the long ones first, each where it fits."""
    width = max(1, *lengths)
    rows = [0] * len(lengths)
    room: list[int] = []  # left in each row
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        row = next((row for row, left in enumerate(room) if left >= lengths[i]), len(room))
        if row == len(room):
            room.append(width)
        room[row] -= lengths[i]
        rows[i] = row
    return rows, width


def passes(samples: Sequence[Sequence[Stream]], most: int = ROW_SLOTS) -> list[Members]:
    """Which streams of each sample go through the model together. The clean ones are in the first pass.

    Late streams join the first pass where no sample has more than `most` slots of them. Else they take passes of their
    own: the first of these holds of each sample as many as that allows, in the order in which they join, and so on.
    """
    late = [sorted((s.joins, number) for number, s in enumerate(sample) if s.joins > 0) for sample in samples]
    sizes = [sum(len(sample[number].ids) for _, number in each) for sample, each in zip(samples, late, strict=True)]
    if max(sizes) <= most:
        return [[range(len(sample)) for sample in samples]]
    parts = [_parts(sample, [number for _, number in each], most) for sample, each in zip(samples, late, strict=True)]
    first = [[number for number, s in enumerate(sample) if s.joins == 0] for sample in samples]
    count = max(len(each) for each in parts)
    return [first, *([each[part] if part < len(each) else [] for each in parts] for part in range(count))]


def _parts(sample: Sequence[Stream], numbers: Sequence[int], most: int) -> list[list[int]]:
    """Streams of a sample, at most so many slots at a time, and at least one stream."""
    found: list[list[int]] = []
    room = 0
    for number in numbers:
        size = len(sample[number].ids)
        if not found or size > room:
            found.append([])
            room = most
        found[-1].append(number)
        room -= size
    return found
