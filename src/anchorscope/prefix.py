"""Keys and values computed earlier: of a shared prefix, for all batches; of clean tokens, for later passes of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

if TYPE_CHECKING:
    from anchorscope.models.load import Model

KeysValues = tuple[torch.Tensor, torch.Tensor]
"""Of one layer: (row, heads, tokens, width) each."""
Prefix = list[KeysValues]
"""Per layer the keys and the values; one row where all share it; empty where there is nothing."""


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


class _PassingLayer(DynamicLayer):  # type: ignore[misc]
    """Puts what was computed earlier before a batch's own keys and values; keeps nothing, unless told to save."""

    def __init__(self, earlier: Sequence[KeysValues], save: int) -> None:
        super().__init__()
        self.earlier, self.save = earlier, save
        self.saved: KeysValues | None = None
        if earlier:
            self.keys, self.values = earlier[0]
            self.dtype, self.device, self.is_initialized = self.keys.dtype, self.keys.device, True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.save:
            self.saved = (key_states[:, :, : self.save].clone(), value_states[:, :, : self.save].clone())
        rows = key_states.shape[0]
        return tuple(
            torch.cat([*(each[part].to(own.device).expand(rows, -1, -1, -1) for each in self.earlier), own], dim=2)
            for part, own in enumerate((key_states, value_states))
        )


def passing_cache(layers: int, prefix: Prefix, clean: Prefix | None = None, save: int = 0) -> Cache:
    """A cache for one pass behind the prefix, and behind the clean streams' keys and values where they are given.

    The first `save` slots' keys and values are kept for `saved_in`.
    """
    before = [[each[layer] for each in (prefix, clean) if each] for layer in range(layers)]
    return Cache(layers=[_PassingLayer(earlier, save) for earlier in before])


def saved_in(cache: Cache) -> Prefix:
    """What a pass saved, per layer."""
    return [layer.saved for layer in cache.layers]
