"""Attention written out by hand, edge by edge: what every cut is checked against.

It shares nothing with the fast way: no mask, no cache, no padding, no packing; one sample, one head after the other,
the softmax in float64.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface

from anchorscope.models.load import Model
from anchorscope.traces.attention import attention_as
from anchorscope.traces.knockout import Cut

NAME = "anchorscope_by_hand"


@contextmanager
def attention_by_hand(
    model: Model, cut: Cut, layers: Collection[int] | Mapping[int, Collection[int]]
) -> Iterator[None]:
    """Within it, the model attends by the code below, without the edges of `cut` in `layers`.

    For all heads, or where `layers` maps each of them to its heads, for these.
    """
    windows = model.windows

    def attend(
        module: torch.nn.Module,
        query: torch.Tensor,  # (1, head, token, width)
        key: torch.Tensor,  # (1, key head, token, width)
        value: torch.Tensor,
        attention_mask: Any,
        scaling: float | None = None,
        softcap: float | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        layer: Any = module.layer_idx
        scale = scaling if scaling is not None else query.shape[-1] ** -0.5
        group = query.shape[1] // key.shape[1]
        edges = cut if layer in layers else Cut((), ())
        closed = _closed(query.shape[2], edges, windows[layer]).to(query.device)
        of_others = closed  # of the heads that the cut does not hold for
        if isinstance(layers, Mapping) and layer in layers:
            of_others = _closed(query.shape[2], Cut((), ()), windows[layer]).to(query.device)
        attended = []
        for h in range(query.shape[1]):
            mine = closed if not isinstance(layers, Mapping) or h in layers.get(layer, ()) else of_others
            attended.append(_head(query[0, h], key[0, h // group], value[0, h // group], scale, softcap, mine))
        return torch.stack(attended, dim=1)[None].to(query.dtype), None  # (1, token, head, width)

    AttentionInterface.register(NAME, attend)
    with attention_as(model, NAME):
        yield


def _closed(tokens: int, cut: Cut, window: int | None) -> torch.Tensor:
    """Which edges there are not: (query, key)."""
    closed = torch.zeros(tokens, tokens, dtype=torch.bool)
    for q in range(tokens):
        for k in range(tokens):
            ahead = k > q
            behind = window is not None and q - k >= window
            severed = any(k == token and q >= first for token, first in zip(cut.keys, cut.first_queries, strict=True))
            closed[q, k] = ahead or behind or severed
    return closed


def _head(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    softcap: float | None,
    closed: torch.Tensor,
) -> torch.Tensor:
    """One head: (token, width)."""
    scores = (query.double() @ key.double().T) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    return torch.softmax(scores.masked_fill(closed, float("-inf")), dim=1) @ value.double()
