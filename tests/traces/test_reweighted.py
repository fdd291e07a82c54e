"""Attention raised or lowered for one token, against attention written out with the scores changed by hand."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
import torch
from transformers import AttentionInterface

from anchorscope.traces.attention import attention_as
from anchorscope.traces.knockout import Cut
from anchorscope.traces.layout import Stream, clean_stream, cut_stream, lay_out
from anchorscope.traces.reweighted import reweighted_stream
from anchorscope.traces.tracer import Read, Tracer, read_plain
from tiny import SITES, difference, exactness, load_tiny

transformers = pytest.mark.transformers

SHARED = 6
NUMBERS = (2.0, -2.0, 0.3, 0.0, -inf)
HEADS = {0: frozenset({1}), 2: frozenset({0, 3})}
# grouped queries in all but gpt2; windows, longer than which samples are, in both Gemmas; a softcap in Gemma 2
MODELS = [
    ("llama", "sdpa"), ("llama", "eager"), ("gpt2", "sdpa"), ("gpt2", "eager"), ("gemma2", "eager"),
    ("gemma3_text", "sdpa"), ("gemma3_text", "eager"),
]  # fmt: skip


@pytest.fixture(scope="module", params=MODELS, ids="-".join)
def model(request, tmp_path_factory):
    family, attention = request.param
    made = load_tiny(family, tmp_path_factory.mktemp(family), "float64", attention=attention)
    assert made.attention == attention
    return made


def make_samples(seed: int, count: int = 2):
    """Sequences with a common start, each with places that are read and the keys they are to look at."""
    random = np.random.default_rng(seed)
    prefix = random.integers(3, 250, SHARED).tolist()
    samples = []
    for _ in range(count):
        ids = prefix + random.integers(3, 250, int(random.integers(36, 48))).tolist()
        keys = [2, *random.choice(np.arange(SHARED, len(ids) - 8), 4, replace=False).tolist(), len(ids) - 3]
        samples.append((ids, [len(ids) - 1, len(ids) - 5], keys))  # the last key is ahead of one place
    return prefix, samples


def reading(model, prefix, rows, reads):
    return Tracer(model, prefix, SITES)(rows, reads)


def by_hand(model, ids, place, added):
    """The states at a place; added(layer, head) to the scores (query, key). As byhand.py, it shares no mask or row."""

    def attend(module, query, key, value, attention_mask, scaling=None, softcap=None, **kwargs):
        layer, tokens = module.layer_idx, torch.arange(query.shape[2])
        gap = tokens[:, None] - tokens[None, :]
        window = model.windows[layer]
        closed = (gap < 0) | (gap >= (window or len(tokens)))
        group, out = query.shape[1] // key.shape[1], []
        for head in range(query.shape[1]):
            q, k, v = query[0, head].double(), key[0, head // group].double(), value[0, head // group].double()
            scores = q @ k.T * (scaling if scaling is not None else q.shape[1] ** -0.5)
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            scores = (scores + added(layer, head)).masked_fill(closed, -inf)
            out.append(torch.softmax(scores, dim=1) @ v)
        return torch.stack(out, dim=1)[None].to(query.dtype), None

    AttentionInterface.register("reweighted_by_hand", attend)
    with attention_as(model, "reweighted_by_hand"):
        return read_plain(model, ids, [place], SITES)


def edges(length: int, place: int, keys: list[int], number: float):
    """(query, key): the number for one query."""
    made = torch.zeros(length, length, dtype=torch.float64)
    for key in keys:
        if key < place:
            made[place, key] = number
    return made


@transformers
def test_several_in_a_batch_equal_attention_by_hand(model):
    """Different numbers and places side by side in each sample; windows and grouped queries as the model has them."""
    prefix, samples = make_samples(1)
    rows, reads, wanted = [], [], []
    for i, (ids, places, keys) in enumerate(samples):
        rows.append([clean_stream(ids, SHARED)])
        for place in places:
            for number in NUMBERS:
                reads.append(Read(i, len(rows[i]), place))
                rows[i].append(reweighted_stream(ids, SHARED, place, keys, number, 3))
                wanted.append((ids, place, edges(len(ids), place, keys, number)))
    found = reading(model, prefix, rows, reads)
    for j, (ids, place, added) in enumerate(wanted):
        expected = by_hand(model, ids, place, lambda layer, head, added=added: added)
        for site in SITES:
            assert difference(found[site][:, j : j + 1], expected[site]) < exactness(model)


@transformers
def test_zero_is_the_clean_token_and_others_are_not(model):
    prefix, samples = make_samples(2, count=1)
    [(ids, (place, _), keys)] = samples
    clean, plain = clean_stream(ids, SHARED), Stream((ids[place],), place)
    reads = [Read(0, s, place) for s in range(4)]
    rows = [[clean, *(reweighted_stream(ids, SHARED, place, keys, number, 3) for number in (0.0, 2.0, -2.0))]]
    found = reading(model, prefix, rows, reads)
    uncut = reading(model, prefix, [[clean, plain, *rows[0][2:]]], reads)
    for site in SITES:
        assert torch.equal(found[site], uncut[site])  # no bit differs
        each = found[site].split(1, dim=1)
        assert difference(each[1], each[0]) < (1e-12 if model.attention == "sdpa" else 1e-5)
        for one, other in [(2, 0), (3, 0), (3, 2)]:
            assert difference(each[one], each[other]) > 1e-3


@transformers
def test_minus_infinity_is_the_usual_cut_of_one_query(model):
    prefix, samples = make_samples(3)
    rows, nearly, usual, reads = [], [], [], []
    for i, (ids, (place, _), keys) in enumerate(samples):
        clean, cut = clean_stream(ids, SHARED), Cut(tuple(keys), (place,) * len(keys))
        rows.append([clean, reweighted_stream(ids, SHARED, place, keys, -inf, 3)])
        nearly.append([clean, reweighted_stream(ids, SHARED, place, keys, -1e4, 3)])
        usual.append([clean, cut_stream(ids, SHARED, cut, range(3))])
        reads.append(Read(i, 1, place))
    found, near, expected = (reading(model, prefix, each, reads) for each in (rows, nearly, usual))
    for site in SITES:
        assert torch.equal(found[site], expected[site])
        assert difference(near[site], expected[site]) < exactness(model)  # another way to the same weights


@transformers
def test_each_alone_is_the_same(model):
    prefix, samples = make_samples(4)
    rows, reads = [], []
    for i, (ids, (place, _), keys) in enumerate(samples):
        streams = [reweighted_stream(ids, SHARED, place, keys, number, 3) for number in NUMBERS]
        rows.append([clean_stream(ids, SHARED), *streams])
        reads += [Read(i, s, place) for s in range(1, len(rows[i]))]
    together = reading(model, prefix, rows, reads)
    for j, read in enumerate(reads):
        row = [rows[read.sample][0], rows[read.sample][read.stream]]
        alone = reading(model, prefix, [row], [Read(0, 1, read.place)])
        for site in SITES:
            assert difference(together[site][:, j : j + 1], alone[site]) < exactness(model)


@transformers
def test_some_heads_and_layers_and_several_tokens(model):
    """What a stream adds holds where a cut would: beside one that cuts, with heads and without."""
    prefix, samples = make_samples(5)
    rows, reads, wanted = [], [], []
    for i, (ids, _, keys) in enumerate(samples):
        last = len(ids) - 1
        cut = Cut(tuple(keys), tuple(key + 1 for key in keys))
        start, mask = max(cut.first, SHARED), torch.from_numpy(cut.mask(len(ids)))
        mask[:SHARED] = False  # the shared prefix is computed once, without any cut
        rows.append([clean_stream(ids, SHARED)])
        for number, layers, heads in [(1.5, (0, 2), HEADS), (-inf, (0, 2), HEADS), (-1.5, (1, 2), None)]:
            reads.append(Read(i, len(rows[i]), last))
            rows[i].append(Stream(tuple(ids[start:]), start, cut, layers, heads, added=number))
            wanted.append((ids, last, torch.zeros(mask.shape).double().masked_fill(mask, number), layers, heads))
    found = reading(model, prefix, rows, reads)
    for j, (ids, place, added, layers, heads) in enumerate(wanted):

        def where(layer, head, added=added, layers=layers, heads=heads):
            return added if layer in layers and (heads is None or head in heads[layer]) else torch.zeros_like(added)

        expected = by_hand(model, ids, place, where)
        for site in SITES:
            assert difference(found[site][:, j : j + 1], expected[site]) < exactness(model)


def test_without_keys_it_is_the_clean_token():
    ids = list(range(20))
    for keys in ([], [10, 11, 19]):
        stream = reweighted_stream(ids, SHARED, 10, keys, 2.0, 3)
        assert (stream.ids, stream.start, stream.cut.keys, stream.joins) == ((10,), 10, (), 0)
        assert not any(stream.cuts(layer) for layer in range(3))
    assert reweighted_stream(ids, SHARED, 10, [12, 3, 10, 8], 2.0, 3).cut == Cut((3, 8), (10, 10))


def test_edges_that_stay_are_seen():
    """A stream that adds a number hides nothing; what it adds is there for its edges alone, and twice named is once."""
    ids = list(range(3, 43))
    streams = [clean_stream(ids, SHARED)]
    streams += [reweighted_stream(ids, SHARED, 39, [2, 2, 20, 38], number, 3) for number in (-inf, 2.0)]
    layout = lay_out([streams], SHARED, 3)
    plain = lay_out([[streams[0], *[Stream((ids[39],), 39)] * 2]], SHARED, 3)
    [block] = layout.blocks
    seen, uncut = layout.visible(0, 0, 32), plain.visible(0, 0, 32)
    changed = (seen != uncut).any(axis=2)
    assert layout.streams[block.queries[changed]].tolist() == [1]
    [(rows, columns, added)] = layout.added(0, 0)
    assert layout.streams[block.queries[rows, columns]].tolist() == [2]
    there = added[0] * seen[rows[0], columns[0]]
    assert block.keys[rows[0]][there != 0].tolist() == [20, 38]  # 2 is outside the window
    assert set(there.tolist()) == {0.0, 2.0}
    assert not list(plain.added(0, 0))


@pytest.mark.parametrize("place", [-1, 5, 20])
def test_a_place_is_one_of_the_sample(place):
    with pytest.raises(ValueError, match="own tokens"):
        reweighted_stream(list(range(20)), SHARED, place, [3], 1.0, 3)


@pytest.mark.parametrize("number", [inf, nan])
def test_what_is_added_is_a_number(number):
    with pytest.raises(ValueError, match="is a number"):
        reweighted_stream(list(range(20)), SHARED, 10, [3], number, 3)
