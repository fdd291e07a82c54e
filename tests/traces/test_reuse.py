"""Reuse against no reuse: what is shared, packed or begun at a later layer gives the numbers of each pass alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope.traces.byhand import attention_by_hand
from anchorscope.traces.knockout import Cut, Knockout
from anchorscope.traces.layout import BLOCKS, WIDTH, clean_stream, cut_stream, lay_out
from anchorscope.traces.tracer import Read, Tracer, read_plain
from tiny import FAMILIES, PLAIN, SITES, difference, exactness, load_tiny

pytestmark = pytest.mark.transformers


@st.composite
def batches(draw):
    """A shared prefix, samples behind it with cuts of some tokens into later ones, and the layers cut."""
    token = st.integers(3, 250)
    prefix = draw(st.lists(token, max_size=9))
    samples = []
    for _ in range(draw(st.integers(1, 4))):
        own = draw(st.lists(token, min_size=4, max_size=80))
        length = len(prefix) + len(own)
        answer = draw(st.integers(len(prefix) + 2, length - 1))
        keys = draw(st.lists(st.integers(max(1, len(prefix)), answer - 1), min_size=1, max_size=4, unique=True))
        into_answer = draw(st.booleans())
        cut = Cut(tuple(keys), tuple(max(key + 1, answer if into_answer else 0) for key in keys))
        place = draw(st.integers(answer, length - 1))
        samples.append((prefix + own, cut, place))
    rule = draw(st.sampled_from([("cumulative", 1), ("single", 1), ("window", 2), ("window", 3)]))
    return prefix, samples, Knockout(layers=rule[0], width=rule[1])


# exact in float64; that float32 is as exact as it can be is no family's, but for one that has no sdpa
KINDS = [*((family, "float64") for family in FAMILIES), *((family, "float32") for family in (*PLAIN, "gemma2"))]


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def model(request, tmp_path_factory):
    family, dtype = request.param
    return load_tiny(family, tmp_path_factory.mktemp(family), dtype)


@settings(max_examples=12, derandomize=True)
@given(batches())
def test_reuse_equals_no_reuse(model, batch):
    prefix, samples, knockout = batch
    tracer = Tracer(model, prefix, SITES)
    variants = knockout.variants(tracer.layers)
    rows, reads, wanted = [], [], []
    for i, (ids, cut, place) in enumerate(samples):
        streams = [cut_stream(ids, len(prefix), cut, layers) for layers in variants]
        rows.append([clean_stream(ids, len(prefix)), *streams])
        for s in range(1 + len(variants)):
            reads.append(Read(i, s, place))
            wanted.append((ids, place, cut, variants[s - 1] if s else range(0)))
    found = tracer(rows, reads)
    for j, (ids, place, cut, layers) in enumerate(wanted):
        with attention_by_hand(model, cut, layers):
            expected = read_plain(model, ids, [place], SITES)
        for site in SITES:
            assert difference(found[site][:, j : j + 1], expected[site]) < exactness(model)


@settings(max_examples=200)
@given(batches())
def test_every_token_of_a_condition_is_computed_once_and_only_from_its_layer_on(batch):
    prefix, samples, knockout = batch
    layers = 4
    rows = [
        [clean_stream(i, len(prefix)), *(cut_stream(i, len(prefix), c, each) for each in knockout.variants(layers))]
        for i, c, _ in samples
    ]
    layout = lay_out(rows, len(prefix), layers)
    attending = np.concatenate([block.queries[block.queries >= 0] for block in layout.blocks])
    assert sorted(attending.tolist()) == list(range(len(layout.ids)))
    assert all(block.queries.shape[1] <= WIDTH for block in layout.blocks)
    assert sum(layout.counts) == sum(len(stream.ids) * (layers - stream.joins) for row in rows for stream in row)


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "gemma2"])  # grouped queries, windows, eager
def test_a_long_text_in_several_blocks_equals_no_reuse(name, tmp_path):
    """Cuts near the start and near the end of the longest, from the first layer on and later; a short one beside it."""
    model = load_tiny(name, tmp_path, "float32")
    prefix = [5, 6, 7]
    random = np.random.default_rng(0)
    rows, wanted = [], []
    for length, key in ((230, 9), (200, 180), (20, 8)):
        ids, cut = [*prefix, *random.integers(3, 250, length - 3).tolist()], Cut((key, key + 2), (key + 1, key + 5))
        rows.append([clean_stream(ids, 3), *(cut_stream(ids, 3, cut, range(first, 3)) for first in (0, 2))])
        wanted += [(ids, cut, range(0)), (ids, cut, range(3)), (ids, cut, range(2, 3))]
    blocks = lay_out(rows, 3, 3).blocks
    assert 2 < len(blocks) <= BLOCKS
    assert len({block.keys.shape[1] for block in blocks}) == len(blocks)
    reads = [Read(i, s, len(row[0].ids) + 2) for i, row in enumerate(rows) for s in range(3)]
    found = Tracer(model, prefix, SITES)(rows, reads)
    for j, (ids, cut, layers) in enumerate(wanted):
        with attention_by_hand(model, cut, layers):
            expected = read_plain(model, ids, [len(ids) - 1], SITES)
        for site in SITES:
            assert difference(found[site][:, j : j + 1], expected[site]) < exactness(model)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=6), st.integers(0, 50))
def test_rows_of_a_block_have_about_as_many_keys(lengths, shared):
    """They differ by fewer than a row is wide, or than an eighth of the most; few keys are one block."""
    layout = lay_out([[clean_stream([3] * (shared + length), shared)] for length in lengths], shared, 1)
    counts = [(block.keys >= 0).sum(axis=1) for block in layout.blocks]
    longest = max(each.max() for each in counts)
    assert len(counts) <= BLOCKS
    assert all(np.ptp(each) < max(WIDTH, longest / BLOCKS + 1) for each in counts)
    assert all(block.keys.shape[1] - each.max() < 16 for block, each in zip(layout.blocks, counts, strict=True))
    assert len(counts) == 1 or longest > WIDTH
