"""What identifies a tokenizer and the shape of a model, the same in every version of the libraries that load them.

Libraries write the same tokenizer and the same configuration in other words from version to version. So a tokenizer is
known by its tokens, its merges and what it makes of fixed texts, and a model by the shapes of its weights. The weights
themselves are known by the states of a fixed text.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

TEXTS = (
    "The capital of France is Paris.",
    "  two  spaces\n\n\ta tab, and CRLF\r\n ends ",
    "It cost $1,234.56 on 2024-02-29 at 07:05, i.e. 99 % of 10^6; he said: 'don't' \"quote\" ([1], {x}_y) #@!~`|\\/",
    "naïve café ǅ ﬁ Ⅻ ½ e\u0301 Straße İstanbul Ω",
    "Быстрая лиса, γρήγορη αλεπού, השועל המהיר, الثعلب السريع, तेज़ लोमड़ी",
    "敏捷的棕色狐狸，日本語のテキスト。 빠른 갈색 여우 ภาษาไทย",
    "\U0001f600\U0001f469\u200d\U0001f52c\u200b\ufeff\u00a0\u2028\x07 ﷺ",
    "supercalifragilisticexpialidocious aaaaaaaaaaaaaaaa XMLHttpRequest snake_case_name 3.14159265358979",
)


def tokenizer_hash(tokenizer: Any) -> str:
    """A hash of a tokenizer's tokens, merges, added tokens and chat template, and of how it reads fixed texts.

    Not of its BOS, EOS and unknown token: versions of transformers take other ones from one GGUF file. What they do to
    a text shows in the fixed texts.
    """
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model.get("merges") or ()]
    flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    added = {id: [getattr(token, flag) for flag in flags] for id, token in tokenizer.added_tokens_decoder.items()}
    read = [tokenizer(text, add_special_tokens=whole).input_ids for text in TEXTS for whole in (True, False)]
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    return _hash([vocabulary, merges, sorted(added.items()), read, tokenizer.chat_template])


def shape_hash(network: Any) -> str:
    """A hash of a model's family and of the shapes of its weights."""
    shapes = sorted(list(weight.shape) for weight in network.parameters())
    return _hash([network.config.model_type, shapes])


def _hash(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
