from __future__ import annotations

import json
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from anchorscope.alignment import HALF, align, continuation, decode

pytestmark = pytest.mark.transformers

LINES = [
    "Q: Who is the author of The Hobbit?\nA: J. R. R. Tolkien\n\n",
    "Q: In which city was George Rankin born?\nA: Paris, the capital of France\n\n",
    "Q: when is father 's day\nA: the third Sunday in June\n\n",
    "漢字かな交じり文 漢字 😀😁😂 👩‍👩‍👧 Émile Zola, São Paulo, Москва, القاهرة e\u0301\n",
] * 3

ODD = [
    "e\u0301", "a\u0328\u0301", "👩‍👩‍👧", "👍🏽", "❤️", "🇮🇷", "القاهرة", "עברית", "漢字", "𝔘𝔫𝔦", "हिन्दी",
    "\u00a0", "\u3000", "\u200b", "\n", "\r\n", "\t", "  ", " ", "'s", "St. ", "Zürich", "Who", " the", "is", "?",
    "<0x41>", "<s>", "\u2028", "\x7f",
]  # fmt: skip
texts = st.lists(st.sampled_from(ODD) | st.text(max_size=4), min_size=1, max_size=12).map("".join).filter(bool)


@lru_cache
def byte_level(nfc: bool = False) -> PreTrainedTokenizerFast:
    """As in GPT-2, SmolLM2 and, with NFC, Qwen2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        LINES,
        trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, special_tokens=["<s>"], show_progress=False),
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


@lru_cache
def byte_fallback(dummy_space: bool) -> PreTrainedTokenizerFast:
    """SentencePiece-style with bytes for unknown characters: as in Gemma; with a dummy first space as in Llama 2."""
    draft = Tokenizer(models.BPE())
    draft.normalizer = normalizers.Replace(" ", "▁")
    draft.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("▁", "merged_with_next"),
            pre_tokenizers.Punctuation(),
            pre_tokenizers.Split("\n", "isolated"),
        ]
    )
    draft.train_from_iterator(LINES[:3], trainers.BpeTrainer(vocab_size=150, show_progress=False))
    trained = json.loads(draft.to_str())["model"]
    names = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), *trained["vocab"]]
    vocab = {name: index for index, name in enumerate(names)}
    merges = [tuple(merge) for merge in trained["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if dummy_space:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")


FAMILIES = {
    "byte-level": byte_level,
    "gemma": lambda: byte_fallback(dummy_space=False),
    "llama-2": lambda: byte_fallback(dummy_space=True),
}
families = pytest.mark.parametrize("family", FAMILIES)


def ids_of(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


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
