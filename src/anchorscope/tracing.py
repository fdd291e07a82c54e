"""Forward passes under conditions, and the activations at the read positions. Hooks live here and nowhere else.

One pass carries all conditions of a batch of samples (layout.py). Three kinds of hook do it: before a layer, streams
join and position ids follow; before an attention block, it gets this layer's mask; after a site, the read positions are
picked out. Nothing else leaves the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from anchorscope.errors import ModelError
from anchorscope.layout import Layout, Stream, lay_out
from anchorscope.models.load import Model
from anchorscope.models.sites import Site, site_modules
from anchorscope.prefix import compute_prefix, passing_cache


@dataclass(frozen=True)
class Read:
    """One activation to keep: of which row of the batch, under which of its streams, at which place."""

    row: int
    stream: int
    place: int


class Tracer:
    """Runs rows of streams through one model and reads its sites."""

    def __init__(self, model: Model, shared_ids: Sequence[int], sites: Sequence[Site]) -> None:
        self.model, self.shared_ids = model, list(shared_ids)
        self.sites = tuple(sites)
        kind = model.source.architecture
        self._layers = site_modules(model.network, kind, "resid")
        self._attention = site_modules(model.network, kind, "attn")
        self._modules = {site: site_modules(model.network, kind, site) for site in self.sites}
        self._prefix = compute_prefix(model, self.shared_ids)

    @property
    def layers(self) -> int:
        """How many layers the model has."""
        return len(self._layers)

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Sequence[Stream]], reads: Sequence[Read]) -> dict[Site, torch.Tensor]:
        """The activations of each site: (layer, read, width), on the CPU, in the model's dtype.

        A stream that joins at a later layer is the clean one until then, and is read there.
        """
        layout = lay_out(rows, len(self.shared_ids), self.layers)
        places = _read_places(layout, reads, self.layers)
        kept: dict[Site, list[torch.Tensor]] = {site: [] for site in self.sites}
        with ExitStack() as stack:
            for handle in self._hooks(layout, places, kept):
                stack.callback(handle.remove)
            self._forward(layout)
        for site, found in kept.items():
            if len(found) != self.layers:
                raise ModelError(f"{self.model.name}: site {site} was read in {len(found)} of {self.layers} layers")
        return {site: torch.stack([each.cpu() for each in found]) for site, found in kept.items()}

    def _forward(self, layout: Layout) -> None:
        device = self.model.device
        first = _additive(layout, 0, None, torch.float32)  # the hooks give each layer its own
        self.model.network.get_decoder()(
            torch.from_numpy(layout.ids).to(device),
            attention_mask=first.to(device),
            position_ids=torch.from_numpy(layout.places).to(device),
            past_key_values=passing_cache(self._prefix),
            use_cache=bool(self._prefix),
        )

    def _hooks(
        self, layout: Layout, places: list[tuple[list[int], list[int]]], kept: dict[Site, list[torch.Tensor]]
    ) -> Iterator[Any]:
        masks = _Masks(layout, self.model.windows)
        for layer in range(self.layers):
            yield self._layers[layer].register_forward_pre_hook(_Join(layout, layer), with_kwargs=True)
            yield self._attention[layer].register_forward_pre_hook(masks.hook(layer), with_kwargs=True)
            for site in self.sites:
                hook = _Pick(places[layer], kept[site])
                yield self._modules[site][layer].register_forward_hook(hook)


def _read_places(layout: Layout, reads: Sequence[Read], layers: int) -> list[tuple[list[int], list[int]]]:
    """Rows and slots of the reads, for each layer: before it joins, a stream is read where the clean one is."""
    rows = [read.row for read in reads]
    joins = [layout.rows[read.row][read.stream].joins for read in reads]
    own = [layout.slot(read.row, read.stream, read.place) for read in reads]
    clean = [
        layout.slot(read.row, 0, read.place) if join else slot
        for read, join, slot in zip(reads, joins, own, strict=True)
    ]
    found = []
    for layer in range(layers):
        slots = [mine if join <= layer else shared for mine, join, shared in zip(own, joins, clean, strict=True)]
        found.append((rows, slots))
    return found


@dataclass(frozen=True)
class _Pick:
    """After a site: keep the read positions."""

    places: tuple[list[int], list[int]]
    kept: list[torch.Tensor]

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        states = output[0] if isinstance(output, tuple) else output
        self.kept.append(states[self.places[0], self.places[1]])


@dataclass(frozen=True)
class _Join:
    """Before a layer: streams that join here get copies of the clean states; position ids follow the width."""

    layout: Layout
    layer: int

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        width = self.layout.widths[self.layer]
        before = self.layout.widths[self.layer - 1] if self.layer else width
        if width == before == self.layout.widths[-1]:
            return None  # all streams are there from the start
        named = "hidden_states" in kwargs
        states = kwargs["hidden_states"] if named else args[0]
        if self.layer == 0:
            states = states[:, :width]
        elif width > before:
            sources = torch.from_numpy(self.layout.sources[:, before:width]).to(states.device)
            states = torch.cat([states, states.gather(1, sources[:, :, None].expand(-1, -1, states.shape[2]))], dim=1)
        for name in ("position_ids", "position_embeddings"):
            if name in kwargs:
                kwargs[name] = _narrowed(kwargs[name], width)
        if named:
            kwargs["hidden_states"] = states
        else:
            args = (states, *args[1:])
        return args, kwargs


def _narrowed(value: Any, width: int) -> Any:
    """Position ids (row, slot) or position embeddings ((row, slot, width), …), the first `width` slots of them."""
    if isinstance(value, tuple):
        return tuple(each[:, :width] for each in value)
    return value[:, :width]


class _Masks:
    """Each layer's mask, made once where layers agree."""

    def __init__(self, layout: Layout, windows: Sequence[int | None]) -> None:
        self.layout, self.windows = layout, windows
        self._made: dict[Any, torch.Tensor] = {}

    def hook(self, layer: int) -> Any:
        def give(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            states = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
            return args, {**kwargs, "attention_mask": self._mask(layer, states.dtype, states.device)}

        return give

    def _mask(self, layer: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        cuts = frozenset(
            (i, s)
            for i, row in enumerate(self.layout.rows)
            for s, stream in enumerate(row)
            if stream.cut.keys and layer in stream.layers
        )
        key = (cuts, self.layout.widths[layer], self.windows[layer], dtype, device)
        if key not in self._made:
            if len(self._made) > 4:  # a map has one for each layer: let the old ones go
                self._made.clear()
            self._made[key] = _additive(self.layout, layer, self.windows[layer], dtype).to(device)
        return self._made[key]


def _additive(layout: Layout, layer: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """0 where a query sees a key, −inf where not: (row, 1, slot, shared + slot)."""
    seen = torch.from_numpy(layout.visible(layer, window))
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, float("-inf"))[:, None]


@contextmanager
def attention_as(model: Model, implementation: str) -> Iterator[None]:
    """Run a model with another attention code for a while."""
    config = model.network.config
    before = config._attn_implementation
    model.network.set_attn_implementation(implementation)
    try:
        yield
    finally:
        model.network.set_attn_implementation(before)


@torch.inference_mode()
def read_plain(
    model: Model, ids: Sequence[int], places: Sequence[int], sites: Sequence[Site]
) -> dict[Site, torch.Tensor]:
    """Read (layer, place, width) the slow, obvious way: one sample, no cache, no padding, the model's own mask."""
    kept: dict[Site, list[torch.Tensor]] = {site: [] for site in sites}
    rows = [0] * len(places)
    with ExitStack() as stack:
        for site in sites:
            for module in site_modules(model.network, model.source.architecture, site):
                stack.callback(module.register_forward_hook(_Pick((rows, list(places)), kept[site])).remove)
        model.network.get_decoder()(torch.tensor([list(ids)], device=model.device), use_cache=False)
    return {site: torch.stack([each.cpu() for each in found]) for site, found in kept.items()}
