"""How all conditions of some samples share one forward pass: the one place where reuse is decided.

A condition differs from the clean pass only from its first cut query on. So a sample becomes several *streams*:

    shared prefix | clean: the sample's own tokens | knockout: tokens from its first cut on | control: … | …
    (keys and values, computed once for all samples)

A stream's queries see the clean keys before its start, its own keys after it, and nothing of other streams. Every
distinct (token, condition) is computed once; nothing is approximated. A stream whose cut begins at a later layer (a
window, a single layer) joins at that layer with copies of the clean states, which until then are its own: so
cuts at several layers are in the same pass, each from its layer on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.traces.knockout import NOTHING, Cut

PREFIX, PADDING = -1, -2  # streams of keys that are not a condition's own
WIDTH = 64  # queries in a row of attention: more waste edges, fewer waste copies of keys
KEYS = 16  # keys in a row are a multiple: up to four times as fast in bfloat16 as an odd number of them
BLOCKS = 8  # of rows, at most: more waste calls, fewer waste edges


@dataclass(frozen=True)
class Stream:
    """One condition's own tokens. Tokens are counted from the start of the sample's sequence, BOS included."""

    ids: tuple[int, ...]
    """The tokens that are computed for it."""
    start: int
    """The place of the first of them. Places before it are the clean stream's."""
    cut: Cut = NOTHING
    """The edges that are cut in it."""
    layers: Collection[int] = range(0)
    """The layers in which the cut holds. The stream joins at the first of them."""
    heads: Mapping[int, frozenset[int]] | None = None
    """By layer, the heads for which it holds; None: for all, in every one of its layers."""

    @property
    def joins(self) -> int:
        return min(self.layers, default=0) if self.cut.keys else 0

    def cuts(self, layer: int, head: int | None = None) -> bool:
        """Whether its cut holds at a layer, for some head, or for a certain one."""
        if not self.cut.keys or layer not in self.layers:
            return False
        return self.heads is None or head is None or head in self.heads[layer]

    @property
    def end(self) -> int:
        """One past its last place."""
        return self.start + len(self.ids)


def clean_stream(ids: Sequence[int], shared: int) -> Stream:
    """The sample as it is; its first `shared` tokens are the shared prefix."""
    return Stream(tuple(ids[shared:]), shared)


def cut_stream(
    ids: Sequence[int],
    shared: int,
    cut: Cut,
    layers: Collection[int],
    heads: Mapping[int, frozenset[int]] | None = None,
) -> Stream:
    """The same sample under a cut, from its first changed token on.

    The last token is computed at least, so that an empty cut is a pass like any other.
    """
    start = min(max(cut.first, shared), len(ids) - 1)
    return Stream(tuple(ids[start:]), start, cut, layers, heads)


class Block(NamedTuple):
    """Rows of attention that have about as many keys. They are in the order of joining."""

    queries: NDArray[np.int64]
    """(row, column): the slots that attend in a row; PADDING where none does."""
    keys: NDArray[np.int64]
    """(row, column): the keys of a row, counted from the start of the prefix: key shared + i is slot i's."""

    def rows(self, count: int) -> int:
        """How many rows attend where so many slots have joined: those with some of these."""
        return int((self.queries[:, 0] < count).sum())


@dataclass(frozen=True, eq=False)
class Layout:
    """A batch of samples, laid out for one pass.

    Its tokens are **slots** of one flat list, in the order in which they join: all that treats tokens one by one sees
    no padding. Attention alone sees **rows**: some queries, of streams side by side, and the keys that these see. Rows
    that need about as many keys are a **block**, as a long text has rows of few keys and rows of many.
    """

    ids: NDArray[np.int64]
    """(slot,)"""
    places: NDArray[np.int64]
    """(slot,): the token's place in its sequence, which is its position id."""
    streams: NDArray[np.int64]
    """(slot,): the number of its stream, counted through all samples."""
    sources: NDArray[np.int64]
    """(slot,): for a slot that joins after layer 0, the clean slot it is a copy of; else 0."""
    blocks: tuple[Block, ...]
    """All rows of attention, those with the most keys first."""
    counts: tuple[int, ...]
    """(layer,): how many slots have joined."""
    shared: int
    samples: tuple[tuple[Stream, ...], ...]
    """The streams of each sample, the clean one first."""
    firsts: tuple[tuple[int, ...], ...]
    """The first slot of each stream of each sample."""
    _uncut: dict[tuple[int, int | None], NDArray[np.bool_]] = field(default_factory=dict, repr=False)
    """By block and length of a sliding window: what each query sees where nothing is cut, (R, Q, K)."""

    def filled(self, layer: int) -> int:
        """Slots at a layer with those that fill the list up: few lengths, as a CPU compiles a kernel for each.

        Sixteen between a number and its double, so that a thirtieth is filled up on average; eight below 64, as one
        answer that is waited for has few.
        """
        count = self.counts[layer]
        return _up(count, 8 if count < 64 else max(64, 2 ** (count.bit_length() - 1) // 16))

    def slot(self, sample: int, stream: int, place: int) -> int:
        """The slot of a place under a stream: its own, or before its start the clean one."""
        if place < self.samples[sample][stream].start:
            stream = 0
        computed = self.samples[sample][stream]
        if not computed.start <= place < computed.end:
            raise ValueError(f"place {place} is not among the computed tokens of stream {stream}")
        return self.firsts[sample][stream] + place - computed.start

    def visible(self, block: int, layer: int, window: int | None = None, head: int | None = None) -> NDArray[np.bool_]:
        """Which keys of its row each query of a block sees at a layer (by a head where cuts differ): (R, Q, K)."""
        if (block, window) not in self._uncut:
            self._uncut[block, window] = self._without_cuts(block, window)
        seen = self._uncut[block, window][: self.blocks[block].rows(self.counts[layer])].copy()
        for i, s in self.cut_in(layer):
            stream = self.samples[i][s]
            if stream.cuts(layer, head):
                rows, columns, still_seen = self._edges(block, i, s)
                seen[rows, columns] &= still_seen
        return seen

    def _edges(
        self, block: int, sample: int, number: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """The rows and the columns of a stream's queries in a block, and which keys its cut leaves to each.

        The last is (query, key). Of a key only the place counts: those ahead, and those of other streams, are for
        `visible` to hide.
        """
        stream, first = self.samples[sample][number], self.firsts[sample][number]
        stands = self._stands[first : first + len(stream.ids)]
        in_block = stands[:, 0] == block
        rows, columns = stands[in_block, 1], stands[in_block, 2]
        places = self._keys[block][1][rows]
        if not len(rows):
            return rows, columns, np.empty(places.shape, dtype=np.bool_)
        blind = stream.cut.blind_from(max(stream.end, int(places.max()) + 1))
        return rows, columns, np.arange(stream.start, stream.end)[in_block, None] < blind[places]

    @cached_property
    def _stands(self) -> NDArray[np.int64]:
        """(slot, 3): the block, the row and the column in which it attends."""
        stands = np.empty((len(self.ids), 3), dtype=np.int64)
        for number, (queries, _) in enumerate(self.blocks):
            rows, columns = np.nonzero(queries != PADDING)
            stands[queries[rows, columns]] = np.stack([np.full_like(rows, number), rows, columns], axis=1)
        return stands

    def cut_in(self, layer: int) -> tuple[tuple[int, int], ...]:
        """Samples and streams whose cuts hold at a layer."""
        return tuple((i, s) for i, s, stream in self._cut_streams if stream.cuts(layer))

    def heads_in(self, layer: int) -> tuple[frozenset[int], ...]:
        """The heads of cuts that hold at a layer for some heads only; empty where every cut holds for all."""
        by_head = [s.heads for _, _, s in self._cut_streams if s.heads is not None and s.cuts(layer)]
        return tuple(heads[layer] for heads in by_head)

    @cached_property
    def _cut_streams(self) -> list[tuple[int, int, Stream]]:
        every = [(i, s, stream) for i, sample in enumerate(self.samples) for s, stream in enumerate(sample)]
        return [numbered for numbered in every if numbered[2].cut.keys]

    @cached_property
    def _keys(self) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """The streams and the places of the keys of each block: (row, key) each."""
        before = np.arange(self.shared)
        streams = np.concatenate([np.full_like(before, PREFIX), self.streams])
        places = np.concatenate([before, self.places])
        return [(_at(streams, block.keys), _at(places, block.keys)) for block in self.blocks]

    def _starts(self) -> NDArray[np.int32]:
        """(stream,): where each starts."""
        return np.array([stream.start for sample in self.samples for stream in sample], dtype=np.int32)

    def _without_cuts(self, block: int, window: int | None) -> NDArray[np.bool_]:
        """(row, query, key): what each query sees where nothing is cut. Who has not joined is seen by no other."""
        (streams, places), queries = self._keys[block], self.blocks[block].queries
        query_streams, query_places = _at(self.streams, queries), _at(self.places, queries)
        sizes = [len(sample) for sample in self.samples]
        clean = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes).astype(np.int32)[np.maximum(query_streams, 0)]
        start = self._starts()[np.maximum(query_streams, 0)]
        seen: NDArray[np.bool_] = streams[:, None, :] == query_streams[:, :, None]
        seen &= places[:, None, :] <= query_places[:, :, None]
        base = (streams[:, None, :] == PREFIX) | (streams[:, None, :] == clean[:, :, None])
        seen |= base & (places[:, None, :] < start[:, :, None])
        if window is not None:
            seen &= query_places[:, :, None] - places[:, None, :] < window
        nobody = query_streams == PADDING
        seen &= ~nobody[:, :, None]
        seen[:, :, 0] |= nobody  # no query is without a key
        return seen


def _up(count: int, step: int) -> int:
    """The next multiple."""
    return -(-count // step) * step


def _at(values: NDArray[np.int64], index: NDArray[np.int64]) -> NDArray[np.int32]:
    """The values at an index; PADDING where that is."""
    return np.where(index == PADDING, PADDING, values[np.maximum(index, 0)]).astype(np.int32)


def lay_out(samples: Sequence[Sequence[Stream]], shared: int, layers: int) -> Layout:
    """Lay samples, each some streams, out for one pass."""
    if any(sample[0].joins != 0 or sample[0].start != shared for sample in samples):
        raise ValueError("the first stream of a sample is the clean one")
    # 1. in which order streams join, and the first slot of each
    joining = sorted((stream.joins, i, s) for i, sample in enumerate(samples) for s, stream in enumerate(sample))
    first: dict[tuple[int, int], int] = {}
    counts = np.zeros(layers, dtype=np.int64)
    slots = 0
    for layer, i, s in joining:
        first[i, s] = slots
        slots += len(samples[i][s].ids)
        counts[layer:] = slots
    # 2. what each slot is; who attends to whom is for the blocks to say
    numbers = np.cumsum([0] + [len(sample) for sample in samples])  # of the first stream of each sample
    ids: list[int] = []
    places, streams, sources = [], [], []
    for layer, i, s in joining:
        stream = samples[i][s]
        own = np.arange(stream.start, stream.end)
        clean = first[i, 0] + own - shared  # the clean slots of the same places
        ids += stream.ids
        places.append(own)
        streams.append(np.full(len(own), numbers[i] + s))
        sources.append(clean if layer else np.zeros_like(own))
    return Layout(
        ids=np.array(ids, dtype=np.int64),
        places=np.concatenate(places),
        streams=np.concatenate(streams),
        sources=np.concatenate(sources),
        blocks=_blocks(samples, shared, first),
        counts=tuple(counts.tolist()),
        shared=shared,
        samples=tuple(tuple(sample) for sample in samples),
        firsts=tuple(tuple(first[i, s] for s in range(len(sample))) for i, sample in enumerate(samples)),
    )


Slots = NDArray[np.int64]


class _RowPart(NamedTuple):
    """Tokens of a sample that attend in one row."""

    joins: int
    """The layer from which on the first of them attend."""
    queries: Slots
    keys: Slots
    """The slots that they see, their own among them."""


def _blocks(samples: Sequence[Sequence[Stream]], shared: int, first: dict[tuple[int, int], int]) -> tuple[Block, ...]:
    """Who attends to whom, in rows.

    Streams of a sample share a row as far as they fit, as they see the same clean keys; a long one takes several rows;
    and what is short stands side by side, as long as a row has no more keys than the largest piece.
    """
    # 1. pieces: what of a sample fits into one row
    pieces = [
        _piece(sample, parts, [first[i, s] for s in range(len(sample))])
        for i, sample in enumerate(samples)
        for parts in _fitting(sample)
    ]
    # 2. each to the first row with room for it, early and large ones first
    width = _up(max(len(piece.queries) for piece in pieces), 8)
    most = max(len(piece.keys) for piece in pieces)
    rows: list[list[_RowPart]] = []
    room: list[tuple[int, int]] = []  # left in each row, for queries and for keys
    for piece in sorted(pieces, key=lambda piece: (piece.joins, -len(piece.queries))):
        needed = len(piece.queries), len(piece.keys)
        row = next((r for r, left in enumerate(room) if left[0] >= needed[0] and left[1] >= needed[1]), len(room))
        if row == len(room):
            room.append((width, most))
            rows.append([])
        room[row] = room[row][0] - needed[0], room[row][1] - needed[1]
        rows[row].append(piece)
    # 3. their queries side by side; their keys behind the prefix, once each: two pieces of a sample share clean ones
    queries = [np.concatenate([piece.queries for piece in row]) for row in rows]
    before = np.arange(shared)
    keys = [np.unique(np.concatenate([before, *(shared + piece.keys for piece in row)])) for row in rows]
    # 4. rows of about as many keys are a block: all of them, unless some stream is long
    longest = max(map(len, keys))
    step = max(WIDTH, -(-longest // BLOCKS))
    blocks: dict[int, list[int]] = {}
    for row, row_keys in enumerate(keys):
        blocks.setdefault((longest - len(row_keys)) // step, []).append(row)
    return tuple(
        Block(
            _table([queries[row] for row in numbers], width),
            _table([keys[row] for row in numbers], _up(max(len(keys[row]) for row in numbers), KEYS)),
        )
        for _, numbers in sorted(blocks.items())
    )


def _fitting(sample: Sequence[Stream]) -> Iterator[list[tuple[int, range]]]:
    """Streams of a sample in the order in which they join, and which of their tokens: as many as fit into a row."""
    parts: list[tuple[int, range]] = []
    room = WIDTH
    for s in sorted(range(len(sample)), key=lambda s: (sample[s].joins, s)):
        size = len(sample[s].ids)
        if parts and min(size, WIDTH) > room:
            yield parts
            parts, room = [], WIDTH
        for begin in range(0, size, WIDTH):
            if begin:
                yield parts
                parts, room = [], WIDTH
            parts.append((s, range(begin, min(begin + WIDTH, size))))
        room -= len(parts[-1][1])
    yield parts


def _piece(sample: Sequence[Stream], some: Sequence[tuple[int, range]], first: Sequence[int]) -> _RowPart:
    """Some tokens of a sample's streams, with the keys that they see: their own and clean ones."""
    queries = [np.arange(first[s] + tokens.start, first[s] + tokens.stop) for s, tokens in some]
    own = [np.arange(first[s], first[s] + tokens.stop) for s, tokens in some]
    clean = max(0, *(sample[s].start - sample[0].start for s, _ in some))
    keys = np.unique(np.concatenate([*own, np.arange(first[0], first[0] + clean)]))
    return _RowPart(min(sample[s].joins for s, _ in some), np.concatenate(queries), keys)


def _table(rows: Sequence[Slots], width: int) -> NDArray[np.int64]:
    """(row, width): the numbers of each row; PADDING behind them."""
    table = np.full((len(rows), width), PADDING, dtype=np.int64)
    for row, numbers in zip(table, rows, strict=True):
        row[: len(numbers)] = numbers
    return table
