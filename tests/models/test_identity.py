"""What identifies a tokenizer and a model's shape: what they do, and not how a version of a library writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from anchorscope.models.identity import shape_hash, tokenizer_hash
from tiny import tiny_config

pytestmark = pytest.mark.transformers  # CI runs it with the lowest versions too

# computed with transformers 5.22.2 and tokenizers 0.23.3. No version may change them
TOKENIZER = "db251d88945b11fa39b4d3e6f5c2652097e835347facb0f11b68ef4590ab1120"
SHAPE = "57d3b7d3682517684b293ca2e82ba9f3106a39a8e456c99901e9841def4f6200"


def small(change: Callable[[dict[str, Any]], None] = lambda record: None, **special: str) -> Any:
    """A BPE of bytes with three merges, changed in its JSON."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: id for id, token in enumerate(["<bos>", "<eos>", *alphabet, "th", "the", "in"])}
    made = Tokenizer(BPE(vocabulary, [("t", "h"), ("th", "e"), ("i", "n")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<bos>", "<eos>"])
    record = json.loads(made.to_str())
    change(record)
    changed = Tokenizer.from_str(json.dumps(record))
    return PreTrainedTokenizerFast(tokenizer_object=changed, **{"bos_token": "<bos>", "eos_token": "<eos>", **special})


def lower_case(record: dict[str, Any]) -> None:
    record["normalizer"] = json.loads(normalizers.Lowercase().__getstate__())


def other_merge(record: dict[str, Any]) -> None:
    record["model"]["merges"][2] = ["n", "i"]
    record["model"]["vocab"]["ni"] = record["model"]["vocab"].pop("in")


def two_tokens_swapped(record: dict[str, Any]) -> None:
    vocabulary = record["model"]["vocab"]
    vocabulary["q"], vocabulary["z"] = vocabulary["z"], vocabulary["q"]


def single_word(record: dict[str, Any]) -> None:
    record["added_tokens"][0]["single_word"] = True


def space_before(record: dict[str, Any]) -> None:
    record["pre_tokenizer"]["add_prefix_space"] = True


def test_the_hashes_are_those_of_every_supported_version():
    network = AutoModelForCausalLM.from_config(tiny_config("llama", 400))
    assert tokenizer_hash(small()) == TOKENIZER
    assert shape_hash(network) == SHAPE


@pytest.mark.parametrize("change", [lower_case, other_merge, two_tokens_swapped, single_word, space_before])
def test_a_tokenizer_that_reads_otherwise_has_another_hash(change):
    assert tokenizer_hash(small(change)) != tokenizer_hash(small())


def test_the_template_counts_and_the_way_of_writing_does_not(tmp_path: Path):
    plain = tokenizer_hash(small())
    assert tokenizer_hash(small(bos_token="<eos>")) == plain  # nothing puts it in front of a text
    with_template = small()
    with_template.chat_template = "{{ messages }}"
    assert tokenizer_hash(with_template) != plain
    used = small()
    used(["a", "b"], padding=False, truncation=True, max_length=3)  # kept in its JSON
    assert used.backend_tokenizer.to_str() != small().backend_tokenizer.to_str()
    assert tokenizer_hash(used) == plain
    small().save_pretrained(tmp_path)
    assert tokenizer_hash(PreTrainedTokenizerFast.from_pretrained(tmp_path)) == plain


def test_models_of_other_sizes_or_families_have_another_hash():
    def of(family: str, **fields: Any) -> str:
        config = tiny_config(family, 400)
        for name, value in fields.items():
            setattr(config, name, value)
        return shape_hash(AutoModelForCausalLM.from_config(config))

    assert len({of("llama"), of("mistral"), of("llama", intermediate_size=65)}) == 3
