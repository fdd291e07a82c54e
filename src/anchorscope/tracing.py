"""Forward passes under conditions, and the activations at the read positions. Hooks live here and nowhere else.

One pass carries all conditions of a batch of samples; a map takes several (layout.py). Three kinds of hook do it:
before a layer, streams join and position ids follow; before an attention block, it gets this layer's mask; after a
site, the read positions are picked out. Nothing else leaves the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from anchorscope.errors import ModelError
from anchorscope.layout import ROW_SLOTS, Layout, Stream, lay_out, passes
from anchorscope.models.load import Model
from anchorscope.models.sites import Site, site_modules
from anchorscope.prefix import Prefix, compute_prefix, passing_cache, saved_in


@dataclass(frozen=True)
class Read:
    """One activation to keep: of which row of the batch, under which of its streams, at which place."""

    row: int
    stream: int
    place: int


class Tracer:
    """Runs rows of streams through one model and reads its sites."""

    def __init__(
        self, model: Model, shared_ids: Sequence[int], sites: Sequence[Site], row_slots: int = ROW_SLOTS
    ) -> None:
        self.model, self.shared_ids, self.row_slots = model, list(shared_ids), row_slots
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
        planned = passes(rows, self.row_slots)
        found = _Found(self.sites, self.layers, len(reads))
        saved: Saved | None = None
        for number, members in enumerate(planned):
            layout = lay_out(rows, len(self.shared_ids), self.layers, members)
            saved = self._pass(layout, _picks(layout, reads, self.layers), found, saved, number < len(planned) - 1)
        return found.complete(self.model.name)

    def _pass(
        self, layout: Layout, picks: list[_Places], found: _Found, saved: Saved | None, save: bool
    ) -> Saved | None:
        """One forward pass. The first keeps the clean states, keys and values, if later ones begin from them."""
        clean = max(len(row[0].ids) for row in layout.rows) if save and saved is None else 0
        states: list[torch.Tensor] = []
        device = self.model.device
        cache = passing_cache(self.layers, self._prefix, saved.keys if saved else None, clean)
        with ExitStack() as stack:
            for handle in self._hooks(layout, picks, found, saved, states if clean else None):
                stack.callback(handle.remove)
            first = _additive(layout, 0, None, torch.float32)  # the hooks give each layer its own
            self.model.network.get_decoder()(
                torch.from_numpy(layout.ids).to(device),
                attention_mask=first.to(device),
                position_ids=torch.from_numpy(layout.places).to(device),
                past_key_values=cache,
                use_cache=True,
            )
        return Saved(states, saved_in(cache)) if clean else saved

    def _hooks(
        self,
        layout: Layout,
        picks: list[_Places],
        found: _Found,
        saved: Saved | None,
        states: list[torch.Tensor] | None,
    ) -> Iterator[Any]:
        masks = _Masks(layout, self.model.windows)
        for layer in range(self.layers):
            join = _Join(layout, layer, saved, states)
            yield self._layers[layer].register_forward_pre_hook(join, with_kwargs=True)
            yield self._attention[layer].register_forward_pre_hook(masks.hook(layer), with_kwargs=True)
            if picks[layer].reads:
                for site in self.sites:
                    hook = _Pick(picks[layer], found.of(site, layer))
                    yield self._modules[site][layer].register_forward_hook(hook)


@dataclass(frozen=True)
class Saved:
    """What the clean pass leaves for passes that begin at a later layer."""

    states: list[torch.Tensor]
    """(row, slot, width) of the clean slots, as they enter each layer"""
    keys: Prefix
    """their keys and values, per layer"""


@dataclass(frozen=True)
class _Places:
    """What is read at one layer of one pass: rows, slots, and the number of each read."""

    rows: list[int]
    slots: list[int]
    reads: list[int]


def _picks(layout: Layout, reads: Sequence[Read], layers: int) -> list[_Places]:
    """The reads of each layer that this pass serves: before it joins, a stream is read where the clean one is."""
    clean = layout.saved == 0
    found = [_Places([], [], []) for _ in range(layers)]
    for number, read in enumerate(reads):
        joins = layout.rows[read.row][read.stream].joins
        own = layout.firsts[read.row][read.stream] >= 0
        for begin, end, stream, there in ((0, joins, 0, clean), (joins, layers, read.stream, own)):
            if there and begin < end:
                slot = layout.slot(read.row, stream, read.place)
                for each in found[begin:end]:
                    each.rows.append(read.row)
                    each.slots.append(slot)
                    each.reads.append(number)
    return found


class _Found:
    """Collects what is read, and puts it in order at the end: until then nothing waits for the device."""

    def __init__(self, sites: Sequence[Site], layers: int, reads: int) -> None:
        self.layers, self.reads = layers, reads
        self._kept: dict[Site, list[list[tuple[list[int], torch.Tensor]]]] = {
            site: [[] for _ in range(layers)] for site in sites
        }

    def of(self, site: Site, layer: int) -> list[tuple[list[int], torch.Tensor]]:
        """Where a site's hook leaves a layer's activations, with the numbers of their reads."""
        return self._kept[site][layer]

    def complete(self, model: str) -> dict[Site, torch.Tensor]:
        """(layer, read, width) of each site."""
        made = {}
        for site, layers in self._kept.items():
            read = [sum(len(numbers) for numbers, _ in parts) for parts in layers]
            if read != [self.reads] * self.layers:
                at = next(layer for layer, count in enumerate(read) if count != self.reads)
                raise ModelError(f"{model}: site {site} was read {read[at]} of {self.reads} times in layer {at}")
            if not self.reads:
                raise ValueError("nothing is read")
            first = layers[0][0][1]
            whole = torch.empty(self.layers, self.reads, first.shape[1], dtype=first.dtype)
            for layer, parts in enumerate(layers):
                for numbers, states in parts:
                    whole[layer, numbers] = states.cpu()
            made[site] = whole
        return made


@dataclass(frozen=True)
class _Pick:
    """After a site: keep the read positions."""

    places: _Places
    kept: list[tuple[list[int], torch.Tensor]]

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        states = output[0] if isinstance(output, tuple) else output
        self.kept.append((self.places.reads, states[self.places.rows, self.places.slots]))


@dataclass(frozen=True)
class _Join:
    """Before a layer: streams that join here get copies of the clean states; position ids follow the width."""

    layout: Layout
    layer: int
    saved: Saved | None
    states: list[torch.Tensor] | None
    """Where the clean states go, if they are to be saved."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = "hidden_states" in kwargs
        states = kwargs["hidden_states"] if named else args[0]
        if self.states is not None:
            clean = max(len(row[0].ids) for row in self.layout.rows)
            self.states.append(states[:, :clean].clone())
        width = self.layout.widths[self.layer]
        before = self.layout.widths[self.layer - 1] if self.layer else width
        if width == before == self.layout.widths[-1]:
            return None  # all streams are there from the start
        if self.layer == 0:
            states = states[:, : max(1, width)]
        elif width > before:
            clean_states = self.saved.states[self.layer].to(states.device) if self.saved else states
            sources = torch.from_numpy(self.layout.sources[:, before:width]).to(states.device)
            joining = clean_states.gather(1, sources[:, :, None].expand(-1, -1, states.shape[2]))
            states = torch.cat([states[:, :before], joining], dim=1)
        for name in ("position_ids", "position_embeddings"):
            if name in kwargs:
                kwargs[name] = _narrowed(kwargs[name], max(1, width))
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
        key = (cuts, self.layout.width(layer), self.windows[layer], dtype, device)
        if key not in self._made:
            if len(self._made) > 4:  # a map has one for each layer: let the old ones go
                self._made.clear()
            self._made[key] = _additive(self.layout, layer, self.windows[layer], dtype).to(device)
        return self._made[key]


def _additive(layout: Layout, layer: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """0 where a query sees a key, −inf where not: (row, 1, slot, shared + saved + slot)."""
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
    modules = {site: site_modules(model.network, model.source.architecture, site) for site in sites}
    found = _Found(sites, len(next(iter(modules.values()))), len(places))
    everything = _Places([0] * len(places), list(places), list(range(len(places))))
    with ExitStack() as stack:
        for site in sites:
            for layer, module in enumerate(modules[site]):
                stack.callback(module.register_forward_hook(_Pick(everything, found.of(site, layer))).remove)
        model.network.get_decoder()(torch.tensor([list(ids)], device=model.device), use_cache=False)
    return found.complete(model.name)
