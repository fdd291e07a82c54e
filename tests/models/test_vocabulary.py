"""A model is read with its own tokenizer: a GGUF file with the one inside it, and none that does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from transformers import PreTrainedTokenizerFast

from anchorscope import AnchorscopeError, ModelSpec, open_model
from anchorscope.models.load import load_model
from anchorscope.models.vocabulary import check_vocabulary
from small_tokenizers import ids_of
from tiny import load_tiny, save_tiny, save_tiny_gguf, tiny_tokenizer

pytestmark = pytest.mark.transformers


def save_bert_files(folder: Path, words: int) -> None:
    """The files of a text-embedding model: another configuration, and a tokenizer of so many words."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: i for i, word in enumerate([*special, *(f"w{i}" for i in range(words - 5))])}
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordPiece(vocabulary, unk_token="[UNK]")),
        unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
    ).save_pretrained(folder)  # fmt: skip
    settings = folder / "tokenizer_config.json"
    content = json.loads(settings.read_text()) | {"tokenizer_class": "BertTokenizer"}
    settings.write_text(json.dumps(content))
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": words}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 7}))


@pytest.mark.parametrize("way", ["file", "folder"])
def test_a_gguf_file_keeps_its_tokenizer_whatever_lies_beside_it(way: str, tmp_path: Path, monkeypatch):
    pytest.importorskip("gguf")
    monkeypatch.setenv("ANCHORSCOPE_CACHE", "off")
    monkeypatch.chdir(tmp_path)  # where a file of the same name lies, which is another model
    (tmp_path / "m.gguf").write_bytes(b"not this one")
    (tmp_path / "alone").mkdir()
    (tmp_path / "mixed").mkdir()
    alone = load_model(ModelSpec(id=str(save_tiny_gguf(tmp_path / "alone" / "m.gguf")), name="m", dtype="float32"))
    save_tiny_gguf(tmp_path / "mixed" / "m.gguf")
    save_bert_files(tmp_path / "mixed", 300)
    where = {"id": str(tmp_path / "mixed" / "m.gguf")} if way == "file" else {"id": "mixed", "gguf": "m.gguf"}
    mixed = load_model(ModelSpec(**where, name="m", dtype="float32"))
    text = "Who wrote Hamlet?"
    assert ids_of(alone.tokenizer, text) == ids_of(tiny_tokenizer(), text)
    assert ids_of(mixed.tokenizer, text) == ids_of(alone.tokenizer, text)
    assert mixed.fingerprint == alone.fingerprint


@pytest.mark.parametrize(("words", "reason"), [(400, "has a token 399"), (200, "has 200 tokens for the")])
def test_a_tokenizer_of_another_size_is_refused(words: int, reason: str, tmp_path: Path):
    model = load_tiny("llama", tmp_path / "right")
    save_tiny("llama", tmp_path / "mixed")
    config = (tmp_path / "mixed" / "config.json").read_text()
    save_bert_files(tmp_path / "mixed", words)
    (tmp_path / "mixed" / "config.json").write_text(config)
    for weights in (True, False):
        with pytest.raises(AnchorscopeError, match=reason) as refused:
            load_model(ModelSpec(id=str(tmp_path / "mixed"), name="m"), weights=weights)
    assert "tokenizer files that came with these weights" in refused.value.hint
    other = PreTrainedTokenizerFast.from_pretrained(tmp_path / "mixed")
    with pytest.raises(AnchorscopeError, match=reason):
        open_model(model.network, other)


class Rows:
    """A model with so many rows in its embedding."""

    def __init__(self, rows: int) -> None:
        self.embedding = torch.nn.Embedding(rows, 1, device="meta")

    def get_input_embeddings(self) -> Any:
        return self.embedding


@pytest.mark.parametrize(
    ("family", "rows", "tokens", "added"),
    [
        ("Qwen2.5", 151_936, 151_643, 22),
        ("Gemma 3, with a token for images that has no row", 262_144, 262_144, 1),
        ("Phi-2", 51_200, 50_257, 38),
        ("GPT-NeoX", 50_432, 50_254, 23),
        ("SmolLM2", 49_152, 49_152, 0),
    ],
)
def test_padded_embeddings_and_added_tokens_of_real_models_fit(family: str, rows: int, tokens: int, added: int):
    class Vocabulary:
        def get_vocab(self) -> dict[str, int]:
            return {str(i): i for i in range(tokens + added)}

        def get_added_vocab(self) -> dict[str, int]:
            return {str(i): i for i in range(tokens, tokens + added)}

    check_vocabulary(family, Rows(rows), Vocabulary())
    with pytest.raises(AnchorscopeError, match="probably another model's"):
        check_vocabulary(family, Rows(rows * 2), Vocabulary())
    with pytest.raises(AnchorscopeError, match="probably another model's"):
        check_vocabulary(family, Rows(tokens - 1), Vocabulary())
