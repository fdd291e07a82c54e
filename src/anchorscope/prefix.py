"""The keys and values of a shared prefix: computed once, seen by every row of every batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

if TYPE_CHECKING:
    from anchorscope.models.load import Model

Prefix = list[tuple[torch.Tensor, torch.Tensor]]
"""Per layer the keys and the values, (1, heads, tokens, width) each; empty where nothing is shared."""


@torch.inference_mode()
def compute_prefix(model: Model, ids: Sequence[int]) -> Prefix:
    """Read the shared tokens once."""
    if not ids:
        return []
    cache = DynamicCache()  # without the config: full length, also in sliding-window layers
    model.network(
        torch.tensor([list(ids)], device=model.device), past_key_values=cache, use_cache=True, logits_to_keep=1
    )
    return [(layer.keys, layer.values) for layer in cache.layers]


class _PrefixLayer(DynamicLayer):  # type: ignore[misc]
    """Puts the prefix before a batch's own keys and values, and keeps nothing: one pass needs each layer's once."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        rows = key_states.shape[0]
        return tuple(
            torch.cat([kept.to(new.device).expand(rows, -1, -1, -1), new], dim=2)
            for kept, new in ((self.keys, key_states), (self.values, value_states))
        )


def passing_cache(prefix: Prefix) -> Cache | None:
    """A cache for one pass behind the prefix."""
    return Cache(layers=[_PrefixLayer(keys, values) for keys, values in prefix]) if prefix else None
