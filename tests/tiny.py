"""Random tiny models of every supported family, saved and loaded as real ones are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from anchorscope import ModelSpec
from anchorscope.models.load import Model, load_model
from anchorscope.study.terms import Site

FAMILIES = [
    "llama", "qwen2", "qwen3", "qwen3_moe", "mistral", "mixtral", "gemma2", "gemma3_text", "phi3", "olmo2", "granite",
    "smollm3", "cohere", "cohere2", "gpt_neox", "gpt2",
]  # fmt: skip
PLAIN = [
    "llama",
    "gemma3_text",
    "gpt2",
]  # rotary positions, windows, learned positions
WINDOWED = {"mistral", "mixtral", "phi3", "gemma2", "gemma3_text", "cohere2"}
SITES: tuple[Site, ...] = ("attn", "mlp", "resid")
# what a family does that others do not, set so that it matters
OWN: dict[str, dict[str, Any]] = {
    "gemma2": {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 6.0, "query_pre_attn_scalar": 16},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": [1]},
    "granite": {
        "embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.3
    },
    "smollm3": {"no_rope_layers": [1, 0, 1]},
    "cohere": {"logit_scale": 0.5},
    "cohere2": {"logit_scale": 0.5},
}  # fmt: skip
LINES = ["Q: Who wrote Hamlet?\nA: Shakespeare\n\n", "Q: Which planet is closest to the Sun?\nA: Mercury\n\n"]


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of 400 tokens that reads any text."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<bos>", "<eos>"]
    tokenizer.train_from_iterator(LINES, BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=special))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        clean_up_tokenization_spaces=False,
    )


def tiny_config(family: str, vocabulary: int) -> Any:
    """Three layers; a sliding window of 32 where the family has windows, grouped queries where it can."""
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if family == "gpt2":
        sizes: dict[str, Any] = {"n_layer": 3, "n_embd": 32, "n_head": 4, "n_positions": 512}
    else:
        sizes = {"num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
        sizes |= {"max_position_embeddings": 512}
    if family not in ("gpt2", "gpt_neox"):
        sizes |= {"num_key_value_heads": 2}
    if family in ("qwen3", "qwen3_moe", "gemma2", "gemma3_text"):
        sizes |= {"head_dim": 16}
    if family in WINDOWED:
        sizes |= {"sliding_window": 32}
    if family in ("gemma2", "gemma3_text", "cohere2"):
        sizes |= {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
    return AutoConfig.for_model(family, vocab_size=vocabulary, **sizes, **OWN.get(family, {}), **special)


def save_tiny(family: str, folder: Path) -> Path:
    """Write a random model and its tokenizer into a folder."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(len(family))
    network = AutoModelForCausalLM.from_config(tiny_config(family, len(tokenizer)), dtype=torch.float32)
    with torch.no_grad():
        for parameter in network.parameters():  # larger than the usual start, so that attention and argmax matter
            if parameter.dim() > 1:
                parameter.mul_(6.0)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def load_tiny(family: str, folder: Path, dtype: str = "float32", name: str = "tiny", **fields: Any) -> Model:
    """Save a random model and load it as a study does."""
    return load_model(ModelSpec(id=str(save_tiny(family, folder)), name=name, dtype=dtype, **fields))


def exactness(model: Model) -> float:
    """How near two ways to the same activations must be: eager's softmax is in float32 whatever the model is in."""
    return 1e-5 if model.attention == "eager" or model.network.dtype == torch.float32 else 1e-9


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest, relative to the layer's largest activation; both (layer, read, width)."""
    scale = expected.abs().amax(dim=(1, 2), keepdim=True)
    return ((found - expected).abs() / scale).max().item()


def save_tiny_gguf(path: Path) -> Path:
    """Write a random llama of one layer with the tiny tokenizer as a GGUF file."""
    import gguf
    import numpy as np

    words = json.loads(tiny_tokenizer().backend_tokenizer.to_str())["model"]
    width, heads, wide = 32, 4, 64
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(wide)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(words["vocab"]))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(sorted(words["vocab"], key=words["vocab"].__getitem__))
    writer.add_token_types([3, 3, 3] + [1] * (len(words["vocab"]) - 3))  # three control tokens
    writer.add_token_merges([" ".join(merge) for merge in words["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    draw = np.random.default_rng(0)
    shapes = {"token_embd": (len(words["vocab"]), width), "output": (len(words["vocab"]), width)}
    shapes |= {f"blk.0.attn_{part}": (width, width) for part in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": (wide, width), "blk.0.ffn_up": (wide, width), "blk.0.ffn_down": (width, wide)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", draw.normal(size=shape).astype(np.float32))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(width, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
