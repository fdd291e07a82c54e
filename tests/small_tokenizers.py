"""Tokenizers of the kinds that real models have, trained on a few lines; and texts that break naive offsets."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

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


def ids_of(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
