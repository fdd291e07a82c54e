"""Keys and values of the tokens that all samples share, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from transformers.cache_utils import DynamicCache

if TYPE_CHECKING:
    from anchorscope.models.load import Model


Prefix = list[tuple[torch.Tensor, torch.Tensor]]
"""Per layer the keys and the values, (1, heads, tokens, width) each; empty where nothing is shared."""


@torch.inference_mode()
def compute_prefix(model: Model, ids: Sequence[int]) -> Prefix:
    if not ids:
        return []
    cache = DynamicCache()  # without the config: full length, also in sliding-window layers
    model.network.get_decoder()(torch.tensor([list(ids)], device=model.device), past_key_values=cache, use_cache=True)
    return [(layer.keys, layer.values) for layer in cache.layers]
