"""Where `attn`, `mlp` and `resid` are in each family of models: one small table, and nothing else anywhere.

A site is the output of a module: the attention block after its output projection and before any post-norm, the MLP
likewise, and the whole layer. A new family is one line here; the self-test says whether the line is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anchorscope.errors import ModelError, did_you_mean
from anchorscope.study.terms import Site

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Architecture:
    """The names of the parts of one family."""

    layers: str
    """The list of decoder layers, from the causal LM down."""
    attn: str
    """The attention block, from a layer down."""
    mlp: str
    """The MLP, from a layer down."""


_LLAMA_LIKE = Architecture("model.layers", "self_attn", "mlp")
ARCHITECTURES: dict[str, Architecture] = {
    "llama": _LLAMA_LIKE,
    "qwen2": _LLAMA_LIKE,
    "qwen3": _LLAMA_LIKE,
    "mistral": _LLAMA_LIKE,
    "gemma3_text": _LLAMA_LIKE,
    "gemma3": Architecture("model.language_model.layers", "self_attn", "mlp"),
    "phi3": _LLAMA_LIKE,
    "olmo2": _LLAMA_LIKE,
    "gpt_neox": Architecture("gpt_neox.layers", "attention", "mlp"),
    "gpt2": Architecture("transformer.h", "attn", "mlp"),
}


def architecture_of(model_type: str) -> Architecture:
    """The table's line for a model type, or an error that lists the families."""
    if model_type not in ARCHITECTURES:
        raise ModelError(
            f"anchorscope does not know where the sites of '{model_type}' models are; "
            f"{did_you_mean(model_type, ARCHITECTURES)}",
            "A new family is one line in anchorscope/models/sites.py; anchorscope doctor then checks it.",
        )
    return ARCHITECTURES[model_type]


def site_modules(network: nn.Module, model_type: str, site: Site) -> list[nn.Module]:
    """The modules whose outputs are the site, one per layer."""
    architecture = architecture_of(model_type)
    layers = list(network.get_submodule(architecture.layers).children())
    if site == "resid":
        return layers
    return [layer.get_submodule(architecture.attn if site == "attn" else architecture.mlp) for layer in layers]
