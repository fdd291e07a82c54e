"""Which edges are cut, against a loop over all edges, on arbitrary cuts and on spans of real questions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchorscope import PromptSpec
from anchorscope.models.prompts import Prompter
from anchorscope.questions.record import Question
from anchorscope.spans.find import find_spans
from anchorscope.spans.record import Spans
from anchorscope.traces.conditions import CUTS
from anchorscope.traces.knockout import NEVER, NOTHING, Cut, Knockout
from tiny import tiny_tokenizer

PAIRS = (("matched_question", "control_question"), ("matched_random", "control_random"))

pytestmark = pytest.mark.transformers

QUESTIONS = [
    ("Which ocean lies between Africa and Australia?", "the Indian Ocean"),
    ("Who wrote the novel Der Zauberberg, and in which year was it published?", "Thomas Mann, 1924"),
    ("How many strings does a violin have?", "four"),
    ("what is the name of the river that flows through Vienna and Budapest", "Danube"),
    ("In which country is Æthelred's grave?", "England"),
]
CONTEXT = "The Danube rises in the Black Forest and ends in the Black Sea."


@pytest.fixture(scope="module")
def found() -> list[Spans]:
    """The spans of every question, with and without a context, under several seeds of the controls."""
    tokenizer = tiny_tokenizer()
    prompter = Prompter(tokenizer, PromptSpec(shots=1), wants_bos=True)
    spans = []
    for text, answer in QUESTIONS:
        row = Question.asked(text, [answer])
        ids = tokenizer(f" {answer}", add_special_tokens=False).input_ids
        for context in (None, CONTEXT):
            prompt = prompter(text, context)
            spans += [find_spans(prompt, ids, answer, row, tokenizer, seed=seed) for seed in range(3)]
    assert all(each.dropped is None for each in spans)
    return spans


def edges_of(cut: Cut, length: int) -> set[tuple[int, int]]:
    """(query, key), one edge after the other."""
    edges = set()
    for query in range(length):
        for key, first in zip(cut.keys, cut.first_queries, strict=True):
            if query >= first:
                edges.add((query, key))
    return edges


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Cut, int]:
    """A cut, and the length of a sequence that holds its keys; keys may be named twice, queries lie beyond the end."""
    length = draw(st.integers(1, 20))
    keys = draw(st.lists(st.integers(0, length - 1), max_size=6))
    return Cut(tuple(keys), tuple(key + draw(st.integers(1, 25)) for key in keys)), length


@given(cuts())
def test_the_mask_is_the_loop_over_all_edges(case: tuple[Cut, int]):
    cut, length = case
    mask = cut.mask(length)
    assert mask.shape == (length, length)
    assert {(int(q), int(k)) for q, k in zip(*np.nonzero(mask), strict=True)} == edges_of(cut, length)


@given(cuts())
def test_a_token_sees_itself_and_what_comes_before_the_first_changed_one_stays(case: tuple[Cut, int]):
    cut, length = case
    mask = cut.mask(length)
    assert not mask.diagonal().any()
    assert not np.triu(mask).any()  # edges that are not there are not cut either
    changed = np.flatnonzero(mask.any(axis=1))
    assert (changed >= cut.first).all()
    assert cut.first >= length or changed[0] == cut.first
    # once blind, always blind
    assert (mask[1:] >= mask[:-1]).all()


@given(cuts(), cuts())
def test_cutting_more_keys_never_brings_an_edge_back(one: tuple[Cut, int], other: tuple[Cut, int]):
    both = Cut(one[0].keys + other[0].keys, one[0].first_queries + other[0].first_queries)
    length = max(one[1], other[1])
    assert (both.mask(length) == (one[0].mask(length) | other[0].mask(length))).all()


def test_a_cut_of_the_diagonal_is_refused_and_an_empty_one_is_empty():
    for key, query in ((3, 3), (3, 0)):
        with pytest.raises(ValueError, match="a token always sees itself"):
            Cut((1, key), (2, query))
    with pytest.raises(ValueError, match=r"zip\(\) argument"):
        Cut((1, 2), (3,))
    assert NOTHING.first == NEVER
    assert not NOTHING.mask(5).any()


def test_the_knockout_hides_every_exact_question_token_from_all_that_come_after(found: list[Spans]):
    for spans in found:
        length = spans.answer[1]
        expected = {(q, k) for k in spans.exact_question for q in range(k + 1, length)}
        assert edges_of(Knockout().cut(spans), length) == expected
        late = edges_of(Knockout(into="answer").cut(spans), length)
        assert late == {(q, k) for q, k in expected if q >= spans.answer[0]}
        assert {q for q, _ in late} == set(range(*spans.answer))


@pytest.mark.parametrize("into", ["after", "answer"])
@pytest.mark.parametrize(("matched", "control"), PAIRS)
def test_a_control_and_its_matched_knockout_lose_as_many_edges_from_the_same_queries(
    found: list[Spans], matched, control, into
):
    for spans in found:
        length = spans.answer[1]
        edges = {name: edges_of(Knockout(CUTS[name], into).cut(spans), length) for name in (matched, control)}
        per_query = [Counter(query for query, _ in each) for each in edges.values()]
        assert per_query[0] == per_query[1]
        assert len(edges[matched]) > 0
        whole = edges_of(Knockout(into=into).cut(spans), length)
        assert edges[matched] <= whole
        assert not {key for _, key in edges[control]} & set(spans.exact_question)


def test_controls_lie_where_they_should(found: list[Spans]):
    """control_question in the question, both after the prefix and before the answer; no key is cut twice."""
    for spans in found:
        for name, (start, end) in (
            ("control_question", spans.question),
            ("control_random", (spans.prefix[1], spans.answer[0])),
        ):
            keys = Knockout(name).cut(spans).keys  # type: ignore[arg-type]
            assert all(start <= key < end for key in keys)
            assert len(set(keys)) == len(keys)


@given(layers=st.integers(1, 12), width=st.integers(1, 15))
@settings(max_examples=60)
def test_the_variants_of_a_rule(layers: int, width: int):
    assert Knockout().variants(layers) == [range(layers)]
    single = Knockout(layers="single").variants(layers)
    assert [list(each) for each in single] == [[layer] for layer in range(layers)]
    windows = Knockout(layers="window", width=width).variants(layers)
    assert len(windows) == layers
    for layer, window in enumerate(windows):
        first = layer - (width - 1) // 2  # the middle one, or the one before the middle
        assert list(window) == [i for i in range(first, first + width) if 0 <= i < layers]
        assert layer in window


def test_a_width_belongs_to_a_window():
    for rule, width in (("cumulative", 2), ("single", 3), ("window", 0)):
        with pytest.raises(ValueError, match="width belongs to"):
            Knockout(layers=rule, width=width)  # type: ignore[arg-type]
    assert Knockout(layers="window", width=1).variants(4) == Knockout(layers="single").variants(4)
