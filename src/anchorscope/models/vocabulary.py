"""Does a tokenizer fit a model? Its tokens are rows of the embedding, and it has a token for nearly every row.

An embedding is often padded: Qwen2.5 has 151,936 rows for 151,665 tokens, GPT-NeoX 50,432 for 50,277, and Phi-2, the
sparsest that we know, 51,200 for 50,295 (98 %). A token that was added may lie outside: Gemma 3 has one for images,
which its small models have no row for. If a text holds such a token, the model fails on it, but gives no wrong number.
"""

from __future__ import annotations

from typing import Any

from anchorscope.errors import ModelError

COVERED = 0.9  # share of the rows that must have a token


def check_vocabulary(name: str, network: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer that belongs to another model, as far as its size shows."""
    rows = int(network.get_input_embeddings().weight.shape[0])
    vocabulary, added = tokenizer.get_vocab(), tokenizer.get_added_vocab()
    last = max((id for token, id in vocabulary.items() if token not in added), default=-1)
    covered = len({id for id in vocabulary.values() if id < rows})
    if last < rows and covered >= COVERED * rows:
        return
    problem = (
        f"its tokenizer has a token {last:,}, but its embedding has only {rows:,} rows"
        if last >= rows
        else f"its tokenizer has {covered:,} tokens for the {rows:,} rows of its embedding"
    )
    raise ModelError(
        f"{name}: {problem}, so the tokenizer is probably another model's",
        "Use the tokenizer files that came with these weights. If they did, call "
        "model.resize_token_embeddings(len(tokenizer)) in transformers, and save the model.",
    )
