"""The fast pass against the slow one, on random tiny models of every family."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from anchorscope.traces.attention import attention_as
from anchorscope.traces.byhand import attention_by_hand
from anchorscope.traces.knockout import NOTHING, Cut
from anchorscope.traces.layout import Stream, clean_stream, cut_stream, lay_out
from anchorscope.traces.tracer import Read, Tracer, read_plain
from tiny import FAMILIES, SITES, difference, exactness, load_tiny

pytestmark = pytest.mark.transformers


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory):
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param), "float64")


def make_samples(seed: int, count: int = 3, shared: int = 6):
    """Sequences with a common start, longer than the windows of tiny models, and a cut in each."""
    random = np.random.default_rng(seed)
    prefix = random.integers(3, 250, shared).tolist()
    samples = []
    for _ in range(count):
        own = random.integers(3, 250, int(random.integers(8, 40))).tolist()
        length = shared + len(own)
        keys = sorted(random.choice(np.arange(shared, length - 3), 3, replace=False).tolist())
        answer = length - 2
        after = Cut(tuple(keys), tuple(key + 1 for key in keys))
        late = Cut(tuple(keys), tuple(max(answer, key + 1) for key in keys))
        samples.append((prefix + own, {"after": after, "answer": late}))
    return prefix, samples


def by_hand(model, ids, places, cut, layers):
    with attention_by_hand(model, cut, layers):
        return read_plain(model, ids, places, SITES)


def layer_ranges(rule: str, layers: int):
    return {"cumulative": [range(layers)], "single": [range(i, i + 1) for i in range(layers)]}.get(
        rule, [range(max(0, i - 1), min(layers, i + 2)) for i in range(layers)]
    )


# each rule and each way once; all pairs of them, of every family, are drawn by `test_reuse`
@pytest.mark.parametrize(("into", "rule"), [("after", "cumulative"), ("answer", "single"), ("after", "window")])
def test_all_conditions_of_a_batch_equal_attention_by_hand(model, into, rule):
    """All in one pass, those of a map from their layer on."""
    prefix, samples = make_samples(len(into) * 7 + len(rule))
    tracer = Tracer(model, prefix, SITES)
    ranges = layer_ranges(rule, tracer.layers)
    rows, reads, wanted = [], [], []
    for i, (ids, cuts) in enumerate(samples):
        row = [clean_stream(ids, len(prefix))]
        for s, layers in enumerate(ranges, start=1):
            row.append(cut_stream(ids, len(prefix), cuts[into], layers))
            wanted.append((ids, cuts[into], layers))
            reads += [Read(i, s, place) for place in (len(ids) - 2, len(ids) - 1)]
        rows.append(row)
    found = tracer(rows, reads)
    for j, (ids, cut, layers) in enumerate(wanted):
        expected = by_hand(model, ids, [len(ids) - 2, len(ids) - 1], cut, layers)
        for site in SITES:
            assert difference(found[site][:, 2 * j : 2 * j + 2], expected[site]) < exactness(model)


def test_the_clean_stream_is_the_plain_pass(model):
    prefix, samples = make_samples(3)
    found = Tracer(model, prefix, SITES)(
        [[clean_stream(ids, len(prefix))] for ids, _ in samples],
        [Read(i, 0, len(ids) - 1) for i, (ids, _) in enumerate(samples)],
    )
    for i, (ids, _) in enumerate(samples):
        expected = read_plain(model, ids, [len(ids) - 1], SITES)
        for site in SITES:
            assert difference(found[site][:, i : i + 1], expected[site]) < exactness(model)


def test_a_stream_of_other_tokens_stands_behind_the_prefix_alone(model):
    """What answer_only is: fewer tokens, from inside the shared prefix on."""
    prefix, samples = make_samples(4, count=2)
    rows, reads = [], []
    for i, (ids, _) in enumerate(samples):
        rows.append([clean_stream(ids, len(prefix)), Stream(tuple(ids[-4:]), len(prefix) - 2)])
        reads.append(Read(i, 1, len(prefix) + 1))
    found = Tracer(model, prefix, SITES)(rows, reads)
    for i, (ids, _) in enumerate(samples):
        alone = prefix[:-2] + ids[-4:]
        expected = read_plain(model, alone, [len(alone) - 1], SITES)
        for site in SITES:
            assert difference(found[site][:, i : i + 1], expected[site]) < exactness(model)


def test_without_a_shared_prefix(model):
    prefix, samples = make_samples(5)
    rows = [[clean_stream(ids, 0), cut_stream(ids, 0, cuts["after"], range(3))] for ids, cuts in samples]
    reads = [Read(i, 1, len(ids) - 1) for i, (ids, _) in enumerate(samples)]
    packed = Tracer(model, prefix, SITES)(
        [[clean_stream(i, 6), cut_stream(i, 6, c["after"], range(3))] for i, c in samples], reads
    )
    for site, found in Tracer(model, [], SITES)(rows, reads).items():
        assert difference(found, packed[site]) < exactness(model)


def test_eager_takes_the_same_masks(model):
    prefix, samples = make_samples(6)
    rows = [[clean_stream(i, 6), cut_stream(i, 6, c["after"], range(3))] for i, c in samples]
    reads = [Read(i, 1, len(ids) - 1) for i, (ids, _) in enumerate(samples)]
    fast = Tracer(model, prefix, SITES)(rows, reads)
    with attention_as(model, "eager"):
        slow = Tracer(model, prefix, SITES)(rows, reads)
    for site in SITES:
        assert difference(fast[site], slow[site]) < 1e-5  # its softmax is in float32


def test_an_empty_cut_changes_nothing_and_a_real_one_does(model):
    prefix, samples = make_samples(7)
    rows = [
        [clean_stream(i, 6), cut_stream(i, 6, NOTHING, range(3)), cut_stream(i, 6, c["after"], range(3))]
        for i, c in samples
    ]
    reads = [Read(i, s, len(ids) - 1) for s in range(3) for i, (ids, _) in enumerate(samples)]
    for found in Tracer(model, prefix, SITES)(rows, reads).values():
        clean, empty, cut = found.split(3, dim=1)
        assert difference(empty, clean) < (1e-12 if model.attention == "sdpa" else 1e-5)
        assert difference(cut, clean) > 1e-3


def test_a_row_does_not_depend_on_its_batch(model):
    prefix, samples = make_samples(8, count=4)
    rows = [[clean_stream(i, 6), cut_stream(i, 6, c["answer"], range(3))] for i, c in samples]
    reads = [Read(i, 1, len(ids) - 1) for i, (ids, _) in enumerate(samples)]
    tracer = Tracer(model, prefix, SITES)
    together = tracer(rows, reads)
    for i in range(4):
        alone = tracer([rows[i]], [Read(0, 1, reads[i].place)])
        for site in SITES:
            assert difference(together[site][:, i : i + 1], alone[site]) < exactness(model)


def test_visible_is_what_the_definition_says():
    """Each slot against a loop over the definition, windows and late joins included."""
    random = np.random.default_rng(0)
    for window, trial in itertools.product([None, 5], range(5)):
        shared, rows = 4, []
        for length in (23, 9, 8, 10) if trial % 2 else (150, 33, 9):  # in one row a sample, or in several
            ids = random.integers(3, 99, length).tolist()
            keys = random.choice(np.arange(shared, len(ids) - 2), 2, replace=False).tolist()
            cut = Cut(tuple(keys), tuple(key + 1 for key in keys))
            rows.append(
                [clean_stream(ids, shared), Stream((7, 8), 3)]
                + [cut_stream(ids, shared, cut, range(layer, layer + 1)) for layer in (0, 2)]
            )
        layout = lay_out(rows, shared, 4)
        count = sum(len(block.queries) for block in layout.blocks)
        assert count < len(rows) if trial % 2 else count > len(rows)
        assert len(layout.blocks) == 1 if trial % 2 else len(layout.blocks) > 1
        attending = np.concatenate([block.queries[block.queries >= 0] for block in layout.blocks])
        assert sorted(attending) == list(range(len(layout.ids)))  # each slot once
        for layer, (number, block) in itertools.product(range(4), enumerate(layout.blocks)):
            seen = layout.visible(number, layer, window)
            joined = layout.counts[layer]
            assert (block.queries[: len(seen)] < joined).any(axis=1).all()
            assert not ((block.queries[len(seen) :] >= 0) & (block.queries[len(seen) :] < joined)).any()
            for r, q in itertools.product(*map(range, seen.shape[:2])):
                keys, slot = block.keys[r], block.queries[r, q]
                if slot < 0:
                    assert seen[r, q].any()
                elif slot < joined:
                    found = keys[seen[r, q]].tolist()
                    assert len(set(found)) == len(found)
                    assert set(found) == visible_keys(layout, slot, layer, window)


def test_a_cut_may_hold_for_some_heads_and_for_layers_apart(model):
    """Heads that share their keys are told apart, also where each layer has heads of its own."""
    prefix, samples = make_samples(10, count=2)
    heads = {0: frozenset({1}), 2: frozenset({0, 3})}
    rows, reads = [], []
    for i, (ids, cuts) in enumerate(samples):
        rows.append([clean_stream(ids, 6), cut_stream(ids, 6, cuts["after"], (0, 2), heads)])
        reads.append(Read(i, 1, len(ids) - 1))
    found = Tracer(model, prefix, SITES)(rows, reads)
    for i, (ids, cuts) in enumerate(samples):
        with attention_by_hand(model, cuts["after"], heads):
            expected = read_plain(model, ids, [len(ids) - 1], SITES)
        with attention_by_hand(model, cuts["after"], (0, 2)):
            all_heads = read_plain(model, ids, [len(ids) - 1], SITES)
        for site in SITES:
            assert difference(found[site][:, i : i + 1], expected[site]) < exactness(model)
            assert difference(all_heads[site], expected[site]) > 1e-3


def test_the_next_token_is_predicted_as_the_model_does(model):
    """With whatever a family does to its logits: softcap, scale."""
    prefix, samples = make_samples(11)
    rows = [[clean_stream(i, 6), cut_stream(i, 6, c["after"], range(1, 3))] for i, c in samples]
    reads = [Read(i, s, len(ids) - 2) for i, (ids, _) in enumerate(samples) for s in range(2)]
    states, logits = Tracer(model, prefix, SITES).with_logits(rows, reads)
    for site, each in Tracer(model, prefix, SITES)(rows, reads).items():
        assert torch.equal(each, states[site])
    for row, (i, s) in enumerate((i, s) for i in range(len(samples)) for s in range(2)):
        ids, cuts = samples[i]
        with attention_by_hand(model, cuts["after"], range(1, 3) if s else ()), torch.inference_mode():
            expected = model.network(torch.tensor([ids]), use_cache=False).logits[0, -2]
        assert (logits[row] - expected).abs().max() / expected.abs().max() < exactness(model)


def visible_keys(layout, query, layer, window):
    """By the definition, for one query: its own stream up to itself, its clean one before its start, the prefix."""
    shared, every = layout.shared, [(i, s) for i, sample in enumerate(layout.samples) for s in range(len(sample))]
    (sample, number), place = every[layout.streams[query]], layout.places[query]
    mine, found = layout.samples[sample][number], set()
    for k in range(shared + len(layout.ids)):
        (key_sample, key_number), key_place = (
            ((sample, 0), k) if k < shared else (every[layout.streams[k - shared]], layout.places[k - shared])
        )
        own = k >= shared and (key_sample, key_number) == (sample, number) and key_place <= place
        before = (key_sample, key_number) == (sample, 0) and key_place < mine.start
        cut = layer in mine.layers and any(
            key_place == key and place >= first
            for key, first in zip(mine.cut.keys, mine.cut.first_queries, strict=True)
        )
        far = window is not None and place - key_place >= window
        if (own or before) and not cut and not far:
            found.add(k)
    return found


def test_every_distinct_token_of_a_condition_is_computed_once():
    ids, shared = list(range(20)), 6
    cut = Cut((9, 12), (10, 13))
    row = [clean_stream(ids, shared), cut_stream(ids, shared, cut, range(3))]
    layout = lay_out([row], shared, 3)
    assert layout.ids.shape == (14 + 10,)
    late = [clean_stream(ids, shared), cut_stream(ids, shared, cut, range(2, 3))]
    assert lay_out([late], shared, 3).counts == (14, 14, 24)


def test_a_read_before_the_first_cut_is_the_clean_one(model):
    prefix, samples = make_samples(9, count=1)
    ids, cuts = samples[0]
    row = [clean_stream(ids, 6), cut_stream(ids, 6, cuts["after"], range(3))]
    found = Tracer(model, prefix, ("resid",))([row], [Read(0, 0, 6), Read(0, 1, 6)])["resid"]
    assert torch.equal(found[:, 0], found[:, 1])
