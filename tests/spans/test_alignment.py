from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given

from anchorscope.spans.alignment import HALF, align, continuation, decode
from small_tokenizers import FAMILIES, LINES, byte_fallback, byte_level, ids_of, texts

pytestmark = pytest.mark.transformers

families = pytest.mark.parametrize("family", FAMILIES)


def slow_align(tokenizer: Any, ids: list[int], text: str) -> list[tuple[int, int]] | None:
    """The obvious way: decode every prefix of the tokens."""
    ranges, done, window = [], 0, ""
    for end in range(1, len(ids) + 1):
        window = decode(tokenizer, ids[:end])
        whole = window.rstrip(HALF)
        if not text.startswith(whole):
            return None
        before, done = done, max(done, len(whole))
        ranges.append((before, done + (window != whole)))
    return ranges if window == text else None


@families
@given(text=texts)
def test_it_equals_decoding_every_prefix(family, text):
    tokenizer = FAMILIES[family]()
    ids = ids_of(tokenizer, text)
    expected = None if HALF in text else slow_align(tokenizer, ids, text)
    assert align(tokenizer, ids, text) == expected
    if "<s>" not in text:  # Llama's dummy space stands after a special token too, and does not round-trip
        assert (expected is None) == (HALF in text or (family != "byte-level" and "▁" in text))


@families
@given(text=texts)
def test_ranges_go_forward_and_cover_the_text(family, text):
    tokenizer = FAMILIES[family]()
    ranges = align(tokenizer, ids_of(tokenizer, text), text)
    if ranges is None:
        return
    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(text)
    for (start, end), (next_start, next_end) in pairwise(ranges):
        assert start <= next_start <= end <= next_end  # no gap; two tokens share a character at most


@families
@given(text=texts)
def test_a_tail_aligns_as_in_the_whole(family, text):
    tokenizer = FAMILIES[family]()
    ids = [tokenizer.bos_token_id, *ids_of(tokenizer, text)]
    whole = align(tokenizer, ids, text, token=1)
    if whole is None:
        return
    for token in range(1, len(whole)):
        if 0 < whole[token - 1][1] == whole[token][0]:  # a character begins here
            assert align(tokenizer, ids, text, token=token + 1, char=whole[token][0]) == whole[token:]
            assert continuation(tokenizer, ids, token + 1) == text[whole[token][0] :]


def test_a_character_of_several_tokens_is_in_the_range_of_each():
    tokenizer = byte_fallback(dummy_space=False)
    ids = ids_of(tokenizer, "a\u00a0😀é")
    assert len(ids) == 1 + 2 + 4 + 2
    expected = [(0, 1)] + [(1, 2)] * 2 + [(2, 3)] * 4 + [(3, 4)] * 2
    assert align(tokenizer, ids, "a\u00a0😀é") == expected


@families
def test_another_text_has_no_alignment(family):
    tokenizer = FAMILIES[family]()
    text = "Who is the author of 漢字 😀?"
    ids = ids_of(tokenizer, text)
    assert align(tokenizer, ids, text) is not None
    for other in (text + " ", text[:-1], " " + text, text.replace("author", "autho"), text.lower(), text + HALF, ""):
        assert align(tokenizer, ids, other) is None, other
    for drop in range(len(ids)):
        fewer = ids[:drop] + ids[drop + 1 :]
        if family != "llama-2" or drop:  # its first token is a dummy space that says nothing
            assert align(tokenizer, fewer, text) is None


def test_a_tokenizer_that_normalises_does_not_round_trip():
    tokenizer = byte_level(nfc=True)
    assert align(tokenizer, ids_of(tokenizer, "e\u0301"), "e\u0301") is None
    assert align(tokenizer, ids_of(tokenizer, "é"), "é") is not None


@families
def test_a_text_that_holds_the_replacement_character_has_no_alignment(family):
    tokenizer = FAMILIES[family]()
    for text in (f"a{HALF}b", f"{HALF}{HALF} b"):
        assert align(tokenizer, ids_of(tokenizer, text), text) is None


def test_half_a_character_at_the_end_is_no_alignment():
    tokenizer = byte_level()
    ids = ids_of(tokenizer, "a🜁")[:-1]
    for text in ("a", "a🜁", f"a{HALF}"):
        assert align(tokenizer, ids, text) is None


def test_what_stands_before_a_tail_costs_nothing():
    tokenizer = byte_level()
    decoded = []

    class Counting:
        def decode(self, ids: list[int], **options: Any) -> str:
            decoded.append(len(ids))
            return str(tokenizer.decode(ids, **options))

    head, tail = LINES[0] * 50, "Who wrote 漢字?"
    before = ids_of(tokenizer, head)
    ids = before + ids_of(tokenizer, tail)
    assert align(Counting(), ids, head + tail, token=len(before), char=len(head)) is not None
    assert max(decoded) <= len(ids) - len(before) + 1
