"""Keys and values computed earlier: of a shared prefix, for all batches; of clean tokens, for later passes of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

if TYPE_CHECKING:
    from anchorscope.models.load import Model

ALIGNMENT = 16
KeysValues = tuple[torch.Tensor, torch.Tensor]
Prefix = list[KeysValues]
"""Per layer the keys and the values: (1, heads, tokens, width) of a shared prefix; empty where nothing is shared."""
Places = NDArray[np.int64]


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


def aligned(keys: int) -> int:
    """How many keys attention is given: up to four times as fast in bfloat16 as an odd number of them."""
    return -(-keys // ALIGNMENT) * ALIGNMENT


class _PassingLayer(DynamicLayer):  # type: ignore[misc]
    """Puts what was computed earlier before a batch's own keys and values; keeps nothing, unless told to save."""

    def __init__(
        self, prefix: KeysValues | None, earlier: KeysValues | None, saved: Places, save: Places | None
    ) -> None:
        super().__init__()
        self.prefix, self.earlier, self.save = prefix, earlier, save
        self.places = saved
        self.found: KeysValues | None = None
        if prefix is not None:
            self.keys, self.values = prefix
            self.dtype, self.device, self.is_initialized = self.keys.dtype, self.keys.device, True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.save is not None:
            rows, columns = (torch.from_numpy(each).to(key_states.device) for each in self.save.T)
            self.found = (key_states[rows, :, columns], value_states[rows, :, columns])
        return self._whole(0, key_states), self._whole(1, value_states)

    def _whole(self, part: int, own: torch.Tensor) -> torch.Tensor:
        """(row, heads, keys, width): the prefix, the clean ones saved earlier, the batch's own, and room to align."""
        rows, heads, count, width = own.shape
        parts = []
        if self.prefix is not None:
            parts.append(self.prefix[part].to(own.device).expand(rows, -1, -1, -1))
        if self.earlier is not None:
            index = torch.from_numpy(np.maximum(self.places, 0)).to(own.device)
            parts.append(self.earlier[part].to(own.device)[index].transpose(1, 2))
        total = sum(each.shape[2] for each in parts) + count
        room = own.new_zeros(rows, heads, aligned(total) - total, width)
        return torch.cat([*parts, own, room], dim=2)


def passing_cache(
    layers: int, prefix: Prefix, earlier: Prefix | None, saved: Places, save: Places | None = None
) -> Cache:
    """A cache for one pass behind the prefix, and behind clean keys and values of an earlier pass where there are some.

    `saved` (row, column) says which of these stand where; `save` (slot, 2), whose are kept, by row and column.
    """
    return Cache(
        layers=[
            _PassingLayer(prefix[layer] if prefix else None, earlier[layer] if earlier else None, saved, save)
            for layer in range(layers)
        ]
    )


def saved_in(cache: Cache) -> Prefix:
    """What a pass saved: per layer the keys and values of its slots, (slot, heads, width) each."""
    return [layer.found for layer in cache.layers]
