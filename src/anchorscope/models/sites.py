"""Where `attn`, `mlp` and `resid` are in each family of models: one small table, and nothing else anywhere.

A site is the output of a module: the attention block after its output projection and before any post-norm, the MLP
likewise, and the whole layer. A new family is one line here, or `sites` of a model in a study; `anchorscope doctor`
says whether the line is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorscope.errors import ModelError, did_you_mean
from anchorscope.study import Sites
from anchorscope.study.terms import Site

if TYPE_CHECKING:
    from torch import nn

_LLAMA_LIKE = Sites(layers="model.layers", attn="self_attn", mlp="mlp")
FAMILIES: dict[str, Sites] = {
    "llama": _LLAMA_LIKE,
    "qwen2": _LLAMA_LIKE,
    "qwen3": _LLAMA_LIKE,
    "qwen3_moe": _LLAMA_LIKE,
    "mistral": _LLAMA_LIKE,
    "mixtral": _LLAMA_LIKE,
    "gemma2": _LLAMA_LIKE,
    "gemma3_text": _LLAMA_LIKE,
    "gemma3": Sites(layers="model.language_model.layers", attn="self_attn", mlp="mlp"),
    "phi3": _LLAMA_LIKE,
    "olmo2": _LLAMA_LIKE,
    "granite": _LLAMA_LIKE,
    "smollm3": _LLAMA_LIKE,
    "cohere": _LLAMA_LIKE,
    "cohere2": _LLAMA_LIKE,
    "gpt_neox": Sites(layers="gpt_neox.layers", attn="attention", mlp="mlp"),
    "gpt2": Sites(layers="transformer.h", attn="attn", mlp="mlp"),
}
"""By transformers' model type."""


def sites_of(model_type: str) -> Sites:
    """The table's line for a model type, or an error that lists the families."""
    if model_type not in FAMILIES:
        raise ModelError(
            f"anchorscope does not know the modules of '{model_type}' models; {did_you_mean(model_type, FAMILIES)}",
            "Give the model `sites` (layers, attn, mlp), then check them with: anchorscope doctor MODEL",
        )
    return FAMILIES[model_type]


def site_modules(network: nn.Module, sites: Sites, site: Site) -> list[nn.Module]:
    """The modules whose outputs are the site, one per layer."""
    try:
        layers = list(network.get_submodule(sites.layers).children())
        if site == "resid":
            return layers
        return [layer.get_submodule(sites.attn if site == "attn" else sites.mlp) for layer in layers]
    except AttributeError as error:
        raise ModelError(f"sites: there is no such module ({error})", "Find the paths with print(model).") from None
