"""Attention over a flat list of slots: laid in rows, each with the keys it sees, attended, and flat again.

transformers lets a model attend by any registered function. The one here is given all queries, keys and values of a
layer, gathers them into the rows of a layout, and attends with the code the model would have used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from anchorscope.models.load import Model
from anchorscope.models.prefix import Prefix
from anchorscope.traces.layout import PADDING, Layout

NAME = "anchorscope_rows"
MASKS = 2  # kept at a time: of layers with and without a window
BEYOND_SDPA = ("softcap", "s_aux", "position_bias")  # what some models add to attention


@contextmanager
def attention_as(model: Model, implementation: str) -> Iterator[None]:
    """Run a model with another attention code for a while."""
    config = model.network.config
    before = config._attn_implementation
    config._attn_implementation = implementation
    try:
        yield
    finally:
        config._attn_implementation = before


@contextmanager
def attention_in_rows(model: Model, layout: Layout, prefix: Prefix) -> Iterator[None]:
    """Within it, the model attends over one flat list of slots, in the rows of a layout."""
    token = _ROWS.set(_Rows(layout, prefix, model.windows, model.network.config._attn_implementation))
    try:
        with attention_as(model, NAME):
            yield
    finally:
        _ROWS.reset(token)


class _Rows:
    def __init__(self, layout: Layout, prefix: Prefix, windows: Sequence[int | None], implementation: str) -> None:
        self.layout, self.prefix, self.windows, self.implementation = layout, prefix, windows, implementation
        self._masks: dict[Any, list[torch.Tensor]] = {}
        self._indices: dict[Any, tuple[list[tuple[torch.Tensor, torch.Tensor]], torch.Tensor]] = {}

    def __call__(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,  # (1, H, S, D)
        key: torch.Tensor,  # (1, G, S, D)
        value: torch.Tensor,  # (1, G, S, D)
        attention_mask: Any,
        scaling: float | None = None,
        **given: Any,
    ) -> tuple[torch.Tensor, None]:
        layer: Any = module.layer_idx
        blocks, back = self._index(layer, query.device)
        heads, group = query.shape[1], query.shape[1] // key.shape[1]
        sdpa = self.implementation == "sdpa" and all(given.get(name) is None for name in BEYOND_SDPA)
        attend = _code(module, self.implementation)
        masks = self._masked(layer, query, heads, group if sdpa else 1)
        flat = query[0].transpose(0, 1), self._with_prefix(key, 0, layer), self._with_prefix(value, 1, layer)
        outs = []
        for (queries, keys), mask in zip(blocks, masks, strict=True):
            q = _picked(flat[0], queries)  # (R, Q, H, D)
            k, v = (_picked(tensor, keys).transpose(1, 2) for tensor in flat[1:])  # (R, G, K, D)
            if sdpa:
                out = _attend(q, k, v, mask, scaling)
            else:
                out, _ = attend(module, q.transpose(1, 2), k, v, mask, scaling=scaling, **given)
            outs.append(out.flatten(0, 1))  # (R × Q, H, D)
        return (torch.cat(outs) if len(outs) > 1 else outs[0]).index_select(0, back)[None], None  # (1, S, H, D)

    def _with_prefix(self, own: torch.Tensor, part: int, layer: int) -> torch.Tensor:
        """(key, G, D): keys, or values, of the prefix and of the slots."""
        flat = own[0].transpose(0, 1)
        if not self.prefix:
            return flat
        return torch.cat([self.prefix[layer][part][0].transpose(0, 1).to(own.device), flat])

    def _index(self, layer: int, device: torch.device) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], torch.Tensor]:
        """The slots of the queries and the numbers of the keys in each block, and where each slot then stands.

        For those that have not joined, and for padding, any stands there: nobody sees or reads them. A block in which
        nobody has joined is left out.
        """
        count = self.layout.counts[layer]
        if (count, device) not in self._indices:
            blocks, stands = [], []
            for block in self.layout.blocks:
                rows = block.rows(count)
                if rows:
                    queries, keys = block.queries[:rows], block.keys[:rows]
                    stands.append(queries.ravel())
                    queries = np.where((queries == PADDING) | (queries >= count), 0, queries)
                    keys = np.where((keys == PADDING) | (keys >= self.layout.shared + count), 0, keys)
                    blocks.append((torch.from_numpy(queries).to(device), torch.from_numpy(keys).to(device)))
            slots = np.concatenate(stands)
            there = np.flatnonzero((slots != PADDING) & (slots < count))
            back = np.zeros(self.layout.filled(layer), dtype=np.int64)
            back[slots[there]] = there
            self._indices[count, device] = blocks, torch.from_numpy(back).to(device)
        return self._indices[count, device]

    def _masked(self, layer: int, like: torch.Tensor, heads: int, group: int) -> list[torch.Tensor]:
        """The mask of each block in which somebody has joined."""
        layout, window, by_head = self.layout, self.windows[layer], self.layout.heads_in(layer)
        count = layout.counts[layer]
        key = (layout.cut_in(layer), count, window, by_head, like.dtype, like.device, group)
        if key not in self._masks:
            if len(self._masks) == MASKS:  # cuts at several layers have one for each: let the old ones go
                self._masks.clear()
            joined = [number for number, block in enumerate(layout.blocks) if block.rows(count)]
            self._masks[key] = [self._mask(number, layer, like, heads, group) for number in joined]
        return self._masks[key]

    def _mask(self, block: int, layer: int, like: torch.Tensor, heads: int, group: int) -> torch.Tensor:
        """(R, 1, Q × group, K); (R, H / group, Q × group, K) where a cut holds for some heads only.

        The queries of the heads that share their keys stand side by side, `group` of them for each.
        """
        layout, window = self.layout, self.windows[layer]
        if layout.heads_in(layer):
            by_head = [_additive(layout.visible(block, layer, window, head), like.dtype) for head in range(heads)]
            mask = torch.stack(by_head, dim=1)  # (R, H, Q, K)
            mask = mask.reshape(len(mask), heads // group, group, *mask.shape[2:]).transpose(2, 3).flatten(2, 3)
        else:
            mask = _additive(layout.visible(block, layer, window), like.dtype)
            mask = mask[:, None].repeat_interleave(group, dim=2)
        return mask.to(like.device)


_ROWS: ContextVar[_Rows] = ContextVar("rows of the pass that runs")
AttentionInterface.register(NAME, lambda *args, **given: _ROWS.get()(*args, **given))


def _picked(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """values[index] for (row, column) of an index; several times as fast."""
    return values.index_select(0, index.flatten()).view(*index.shape, *values.shape[1:])


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """(R, Q, H, D). Heads that share their keys are queries side by side: no key is copied for each."""
    rows, queries, heads, width = query.shape
    shared, group = key.shape[1], heads // key.shape[1]
    grouped = query.view(rows, queries, shared, group, width).transpose(1, 2).flatten(2, 3)  # (R, G, Q × group, D)
    out = scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scaling)
    return out.reshape(rows, shared, queries, group, -1).transpose(1, 2).flatten(2, 3)


def _code(module: torch.nn.Module, implementation: str) -> Callable[..., Any]:
    """The attention code of that name; the one called eager is the model's own."""
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    return ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager)


def _additive(seen: NDArray[np.bool_], dtype: torch.dtype) -> torch.Tensor:
    """0 where a query sees a key; −inf where not: (R, Q, K)."""
    return torch.full(seen.shape, float("-inf"), dtype=dtype).masked_fill_(torch.from_numpy(seen), 0.0)
