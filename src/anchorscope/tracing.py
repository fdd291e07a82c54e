"""Forward passes under conditions, and the activations at the read positions. Hooks live here and nowhere else.

One pass carries all conditions of a batch of samples; a map takes several (layout.py). Three kinds of hook do it:
before a layer, streams join; around an attention block, slots are laid in rows with this layer's mask; after a site,
the read positions are picked out. Nothing else leaves the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from anchorscope.errors import ModelError
from anchorscope.layout import PADDING, ROW_SLOTS, Layout, Stream, lay_out, passes
from anchorscope.models.load import Model
from anchorscope.models.sites import Site, site_modules
from anchorscope.prefix import Prefix, aligned, compute_prefix, passing_cache, saved_in

MASKS = 2  # kept at a time: of layers with and without a window
PLACED = ("position_ids", "position_embeddings")  # what attention gets with the states of each slot


@dataclass(frozen=True)
class Read:
    """One activation to keep: of which sample of the batch, under which of its streams, at which place."""

    sample: int
    stream: int
    place: int


class Tracer:
    """Runs samples, each some streams, through one model and reads its sites."""

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
    def __call__(self, samples: Sequence[Sequence[Stream]], reads: Sequence[Read]) -> dict[Site, torch.Tensor]:
        """The activations of each site: (layer, read, width), on the CPU, in the model's dtype.

        A stream that joins at a later layer is the clean one until then, and is read there.
        """
        planned = passes(samples, self.row_slots)
        found = _Found(self.sites, self.layers, len(reads))
        saved: Saved | None = None
        for number, members in enumerate(planned):
            layout = lay_out(samples, len(self.shared_ids), self.layers, members)
            saved = self._pass(layout, _picks(layout, reads, self.layers), found, saved, number < len(planned) - 1)
        return found.complete(self.model.name)

    def _pass(
        self, layout: Layout, picks: list[_Places], found: _Found, saved: Saved | None, save: bool
    ) -> Saved | None:
        """One forward pass. The first keeps the clean states, keys and values, if later ones begin from them."""
        clean = layout.clean_slots() if save and saved is None else None
        states: list[torch.Tensor] = []
        device = self.model.device
        earlier = saved.keys if saved else None
        cache = passing_cache(
            self.layers, self._prefix, earlier, layout.saved, None if clean is None else layout.stands[clean]
        )
        keep = None if clean is None else torch.from_numpy(clean)
        with ExitStack() as stack:
            for handle in self._hooks(layout, picks, found, _Join(layout, saved, keep, states)):
                stack.callback(handle.remove)
            self.model.network.get_decoder()(
                _filled(layout.ids, layout).to(device),
                attention_mask=torch.zeros(1, 1, 1, 1, device=device),  # the hooks give each layer its own
                position_ids=_filled(layout.places, layout).to(device),
                past_key_values=cache,
                use_cache=True,
            )
        return Saved(states, saved_in(cache)) if clean is not None else saved

    def _hooks(self, layout: Layout, picks: list[_Places], found: _Found, join: _Join) -> Iterator[Any]:
        rows = _Rows(layout, self.model.windows)
        for layer in range(self.layers):
            yield self._layers[layer].register_forward_pre_hook(partial(join, layer), with_kwargs=True)
            yield self._attention[layer].register_forward_pre_hook(partial(rows.lay, layer), with_kwargs=True)
            yield self._attention[layer].register_forward_hook(partial(rows.flatten, layer))
            if picks[layer].reads:
                for site in self.sites:
                    hook = _Pick(picks[layer], found.of(site, layer))
                    yield self._modules[site][layer].register_forward_hook(hook)


def _filled(values: NDArray[np.int64], layout: Layout) -> torch.Tensor:
    """(1, slot): what comes with each slot, and again the first's for those that fill the list up."""
    extra = layout.filled(-1) - len(values)
    return torch.from_numpy(np.concatenate([values, np.repeat(values[:1], extra)]))[None]


@dataclass(frozen=True)
class Saved:
    """What the clean pass leaves for passes that begin at a later layer."""

    states: list[torch.Tensor]
    """(1, slot, width): of the clean streams, sample after sample, as they enter each layer"""
    keys: Prefix
    """their keys and values, (slot, heads, width) per layer"""


@dataclass(frozen=True)
class _Places:
    """What is read at one layer of one pass: slots, and the number of each read."""

    slots: list[int]
    reads: list[int]


def _picks(layout: Layout, reads: Sequence[Read], layers: int) -> list[_Places]:
    """The reads of each layer that this pass serves: before it joins, a stream is read where the clean one is."""
    clean = layout.saved.shape[1] == 0
    found = [_Places([], []) for _ in range(layers)]
    for number, read in enumerate(reads):
        joins = layout.samples[read.sample][read.stream].joins
        own = layout.firsts[read.sample][read.stream] >= 0
        for begin, end, stream, there in ((0, joins, 0, clean), (joins, layers, read.stream, own)):
            if there and begin < end:
                slot = layout.slot(read.sample, stream, read.place)
                for each in found[begin:end]:
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
        self.kept.append((self.places.reads, states[0, self.places.slots]))


@dataclass(frozen=True)
class _Join:
    """Before a layer: the clean states are saved, and streams that join here get copies of them."""

    layout: Layout
    saved: Saved | None
    keep: torch.Tensor | None
    """The slots whose states are saved, if any."""
    states: list[torch.Tensor]
    """Where they go."""

    def __call__(self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = "hidden_states" in kwargs
        states = kwargs["hidden_states"] if named else args[0]
        if self.keep is not None:
            self.states.append(states[:, self.keep.to(states.device)])
        counts = self.layout.counts
        count, before = counts[layer], counts[layer - 1] if layer else counts[layer]
        if count == before == counts[-1]:
            return None  # all streams are there from the start
        joining = states[:, :0]
        if layer and count > before:
            clean = self.saved.states[layer].to(states.device) if self.saved else states
            joining = clean[:, torch.from_numpy(self.layout.sources[before:count]).to(states.device)]
        if layer == 0 or count > before:
            filling = states[:, :1].expand(-1, self.layout.filled(layer) - count, -1)
            states = torch.cat([states[:, :before], joining, filling], dim=1)
        if named:
            kwargs["hidden_states"] = states
        else:
            args = (states, *args[1:])
        return args, kwargs


class _Rows:
    """Around attention: slots are laid side by side in rows with this layer's mask, and then flat again."""

    def __init__(self, layout: Layout, windows: Sequence[int | None]) -> None:
        self.layout, self.windows = layout, windows
        self._masks: dict[Any, torch.Tensor] = {}
        self._indices: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}
        self._laid: dict[str, tuple[Any, int, Any]] = {}

    def lay(self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Before an attention block."""
        states = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        rows, _ = self._index(layer, states.device)
        given = {name: self._placed(name, kwargs[name], layer, rows) for name in PLACED if kwargs.get(name) is not None}
        if "hidden_states" in kwargs:
            given["hidden_states"] = states[0, rows]
        given["attention_mask"] = self._mask(layer, states.dtype, states.device)
        if "hidden_states" not in kwargs:
            args = (states[0, rows], *args[1:])
        return args, {**kwargs, **given}

    def _placed(self, name: str, value: Any, layer: int, rows: torch.Tensor) -> Any:
        """What comes with the slots, (1, slot, …) or several of these, as (row, column, …). Layers often share it."""
        before, slots, laid = self._laid.get(name, (None, 0, None))
        if value is not before or slots != self.layout.slots(layer):
            many = isinstance(value, tuple)
            laid = tuple(each[0, rows] for each in value) if many else value[0, rows]
            self._laid[name] = (value, self.layout.slots(layer), laid)
        return laid

    def flatten(self, layer: int, module: nn.Module, inputs: Any, output: Any) -> Any:
        """After it. Weights, where an attention code returns some, stay as they are: nobody reads them."""
        states = output[0] if isinstance(output, tuple) else output
        _, back = self._index(layer, states.device)
        flat = states.flatten(0, 1)[back][None]
        return (flat, *output[1:]) if isinstance(output, tuple) else flat

    def _index(self, layer: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Which slot stands in each place of the rows (any, where none does), and in which place each slot stands."""
        key = (self.layout.slots(layer), device)
        if key not in self._indices:
            rows = self.layout.rows_at(layer)
            back = np.zeros(self.layout.filled(layer), dtype=np.int64)
            places = np.flatnonzero(rows != PADDING)
            back[rows.ravel()[places]] = places
            self._indices[key] = tuple(torch.from_numpy(each).to(device) for each in (np.maximum(rows, 0), back))  # type: ignore[assignment]
        return self._indices[key]

    def _mask(self, layer: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        cuts = frozenset(
            (i, s)
            for i, sample in enumerate(self.layout.samples)
            for s, stream in enumerate(sample)
            if stream.cut.keys and layer in stream.layers
        )
        key = (cuts, self.layout.slots(layer), self.windows[layer], dtype, device)
        if key not in self._masks:
            if len(self._masks) == MASKS:  # a map has one for each layer: let the old ones go
                self._masks.clear()
            self._masks[key] = _additive(self.layout, layer, self.windows[layer], dtype).to(device)
        return self._masks[key]


def _additive(layout: Layout, layer: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """0 where a query sees a key, −inf where not: (row, 1, column, shared + saved + column + room to align)."""
    seen = torch.from_numpy(layout.visible(layer, window))
    rows, queries, keys = seen.shape
    mask = torch.full((rows, 1, queries, aligned(keys)), float("-inf"), dtype=dtype)
    mask[:, 0, :, :keys].masked_fill_(seen, 0.0)
    return mask


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
    everything = _Places(list(places), list(range(len(places))))
    with ExitStack() as stack:
        for site in sites:
            for layer, module in enumerate(modules[site]):
                stack.callback(module.register_forward_hook(_Pick(everything, found.of(site, layer))).remove)
        model.network.get_decoder()(torch.tensor([list(ids)], device=model.device), use_cache=False)
    return found.complete(model.name)
