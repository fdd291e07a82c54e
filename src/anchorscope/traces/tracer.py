"""Forward passes under conditions, and the activations at the read positions. Hooks live here and in listening.py.

One pass carries all conditions of a batch of samples (layout.py). Two kinds of hook do it, beside attention in rows
(attention.py): before a layer, streams join; after a site, the read positions are picked out. Nothing else leaves the
device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from anchorscope.errors import ModelError
from anchorscope.models.load import Model
from anchorscope.models.prefix import Prefix, compute_prefix
from anchorscope.models.sites import site_modules
from anchorscope.study.terms import Site
from anchorscope.traces.attention import attention_in_rows
from anchorscope.traces.layout import Layout, Stream, lay_out

CHUNK = 64  # rows of logits that are made float32 at a time
PLACED = ("position_ids", "position_embeddings")  # what a layer gets with the states of each slot


@dataclass(frozen=True)
class Read:
    """One activation to keep: of which sample of the batch, under which of its streams, at which place."""

    sample: int
    """The number of the sample in the batch."""
    stream: int
    """The number of the stream in the sample."""
    place: int
    """The token's place in its sequence."""


class Predicted(NamedTuple):
    """What the model predicts of some tokens, each behind the token before it."""

    logprob: torch.Tensor
    """(token): natural logarithm of its probability"""
    entropy: torch.Tensor
    """(token): of all tokens that could have stood there, in nats"""
    rank: torch.Tensor
    """(token): number of tokens that were likelier"""


class Tracer:
    """Runs samples, each some streams, through one model and reads its sites, in all layers or in some."""

    def __init__(
        self, model: Model, shared_ids: Sequence[int], sites: Sequence[Site], read_layers: Sequence[int] | None = None
    ) -> None:
        self.model, self.shared_ids = model, list(shared_ids)
        self.sites = tuple(sites)
        self._layers = site_modules(model.network, model.sites, "resid")
        self._read_layers = tuple(range(len(self._layers)) if read_layers is None else read_layers)
        self._modules = {site: site_modules(model.network, model.sites, site) for site in self.sites}

    @cached_property
    def _prefix(self) -> Prefix:
        """Computed on first need: a stage is planned without weights."""
        return compute_prefix(self.model, self.shared_ids)

    @property
    def layers(self) -> int:
        return len(self._layers)

    def __call__(self, samples: Sequence[Sequence[Stream]], reads: Sequence[Read]) -> dict[Site, torch.Tensor]:
        """The activations of each site: (layer, read, width), on the CPU, in the model's dtype.

        A stream that joins at a later layer is the clean one until then, and is read there.
        """
        return self._run(samples, reads, self.model.network.get_decoder())[0]

    def with_logits(
        self, samples: Sequence[Sequence[Stream]], reads: Sequence[Read]
    ) -> tuple[dict[Site, torch.Tensor], torch.Tensor]:
        """The same, and what the model predicts after each token read: logits (read, vocabulary), on the CPU."""
        states, output = self._run(samples, reads, self.model.network, predict=reads)
        return states, output.logits[0].cpu()

    def with_support(
        self, samples: Sequence[Sequence[Stream]], reads: Sequence[Read], said: Sequence[tuple[Read, int]]
    ) -> tuple[dict[Site, torch.Tensor], torch.Tensor]:
        """The same, and the log-probability (natural) of some tokens: each behind the token that is read."""
        states, output = self._run(samples, reads, self.model.network, predict=[read for read, _ in said])
        tokens = torch.tensor([token for _, token in said], device=output.logits.device)
        picked = [
            logits.float().log_softmax(dim=-1).gather(1, ids[:, None])[:, 0]
            for logits, ids in zip(torch.split(output.logits[0], CHUNK), torch.split(tokens, CHUNK), strict=True)
        ]
        return states, torch.cat(picked).cpu()

    def with_predictions(
        self, samples: Sequence[Sequence[Stream]], reads: Sequence[Read], said: Sequence[tuple[Read, int]]
    ) -> tuple[dict[Site, torch.Tensor], Predicted]:
        """The same, and log-probability, entropy and rank of these tokens."""
        states, output = self._run(samples, reads, self.model.network, predict=[read for read, _ in said])
        tokens = torch.tensor([token for _, token in said], device=output.logits.device)
        made = []
        for logits, ids in zip(torch.split(output.logits[0], CHUNK), torch.split(tokens, CHUNK), strict=True):
            logprobs = logits.float().log_softmax(dim=-1)
            own = logprobs.gather(1, ids[:, None])
            entropy = -(logprobs.exp() * logprobs).nan_to_num(0).sum(dim=-1)  # 0 where a token is impossible
            made.append((own[:, 0], entropy, (logprobs > own).sum(dim=-1)))
        return states, Predicted(*(torch.cat(pieces).cpu() for pieces in zip(*made, strict=True)))

    @torch.inference_mode()
    def _run(
        self,
        samples: Sequence[Sequence[Stream]],
        reads: Sequence[Read],
        module: nn.Module,
        predict: Sequence[Read] = (),
    ) -> tuple[dict[Site, torch.Tensor], Any]:
        """One pass of the decoder, or of the whole model: what is read on the way, and what it gives."""
        if not reads and not predict:
            raise ValueError("nothing is read")
        prefix = self._prefix  # before there are hooks
        layout = lay_out(samples, len(self.shared_ids), self.layers)
        readings = _Readings(self.sites, self._read_layers)
        slots = _slots(layout, reads, self.layers)
        device = self.model.device
        # the model's own head is applied to some slots only, with whatever its family does to logits; not a tensor, as
        # accelerate would carry it to the first device of a sharded model, and the head is on the last
        wanted = {"logits_to_keep": _slots(layout, predict, self.layers)[-1]} if predict else {}
        with ExitStack() as stack:
            for handle in self._hooks(layout, slots, readings):
                stack.callback(handle.remove)
            stack.enter_context(attention_in_rows(self.model, layout, prefix))
            output = module(
                _filled(layout.ids, layout).to(device),
                attention_mask=torch.zeros(1, 1, 1, 1, device=device),  # each layer has its own, in attention.py
                position_ids=_filled(layout.places, layout).to(device),
                use_cache=False,
                **wanted,
            )
        return readings.complete(self.model.name), output

    def _hooks(self, layout: Layout, slots: NDArray[np.int64], readings: _Readings) -> Iterator[Any]:
        for layer in range(self.layers):
            yield self._layers[layer].register_forward_pre_hook(partial(_join, layout, layer), with_kwargs=True)
            if layer not in self._read_layers:
                continue
            picked = torch.from_numpy(slots[layer])
            for site in self.sites:
                yield self._modules[site][layer].register_forward_hook(partial(readings.pick, site, layer, picked))


def _filled(values: NDArray[np.int64], layout: Layout) -> torch.Tensor:
    """(1, slot): what comes with each slot, and again the first's for those that fill the list up."""
    extra = layout.filled(-1) - len(values)
    return torch.from_numpy(np.concatenate([values, np.repeat(values[:1], extra)]))[None]


def _slots(layout: Layout, reads: Sequence[Read], layers: int) -> NDArray[np.int64]:
    """(layer, read): which slot is read. Before it joins, a stream is read where the clean one is."""
    slots = np.empty((layers, len(reads)), dtype=np.int64)
    for number, read in enumerate(reads):
        joins = layout.samples[read.sample][read.stream].joins
        slots[:joins, number] = layout.slot(read.sample, 0, read.place) if joins else 0
        slots[joins:, number] = layout.slot(read.sample, read.stream, read.place)
    return slots


def _join(layout: Layout, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Before a layer: streams that join here get copies of the clean states; what comes with slots is theirs only."""
    if layout.counts[0] == layout.counts[-1]:
        return None  # all streams are there from the start
    named = "hidden_states" in kwargs
    states = kwargs["hidden_states"] if named else args[0]
    count, before = layout.counts[layer], layout.counts[layer - 1] if layer else layout.counts[0]
    size = layout.filled(layer)
    if layer == 0 or count > before:
        joining = states[:, torch.from_numpy(layout.sources[before:count]).to(states.device)]
        filling = states[:, :1].expand(-1, size - count, -1)
        states = torch.cat([states[:, :before], joining, filling], dim=1)
    placed = {name: _first(kwargs[name], size) for name in PLACED if kwargs.get(name) is not None}
    kwargs = {**kwargs, **placed}
    if named:
        kwargs["hidden_states"] = states
    else:
        args = (states, *args[1:])
    return args, kwargs


def _first(value: Any, size: int) -> Any:
    """What comes with the first slots: of (1, slot, …), or of several of these."""
    return tuple(tensor[:, :size] for tensor in value) if isinstance(value, tuple) else value[:, :size]


class _Readings:
    """Collects what is read, layer by layer; nothing waits for the device until the end.

    On the CPU it goes where it will stay at once: kept in pieces, it would leave holes in the heap that no later layer
    fits into.
    """

    def __init__(self, sites: Sequence[Site], layers: Sequence[int]) -> None:
        self._places = {layer: place for place, layer in enumerate(layers)}
        self._made: dict[Site, torch.Tensor] = {}
        self._waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._missing = {(site, layer) for site in sites for layer in layers}

    def pick(self, site: Site, layer: int, slots: torch.Tensor, module: nn.Module, inputs: Any, output: Any) -> None:
        """After a site: keep the read positions."""
        states = output[0] if isinstance(output, tuple) else output
        picked = states[0].index_select(0, slots.to(states.device))
        if site not in self._made:
            self._made[site] = picked.new_empty(len(self._places), *picked.shape, device="cpu")
        place = self._made[site][self._places[layer]]
        if picked.device.type == "cpu":
            place.copy_(picked)
        else:
            self._waiting.append((place, picked))
        self._missing.discard((site, layer))

    def complete(self, model: str) -> dict[Site, torch.Tensor]:
        """(layer, read, width) of each site."""
        if self._missing:
            site, layer = min(self._missing)
            raise ModelError(f"{model}: site {site} was not read in layer {layer}")
        for place, picked in self._waiting:
            place.copy_(picked)
        return self._made


@torch.inference_mode()
def read_plain(
    model: Model, ids: Sequence[int], places: Sequence[int], sites: Sequence[Site]
) -> dict[Site, torch.Tensor]:
    """Read (layer, place, width) the slow, obvious way: one sample, no cache, no padding, the model's own mask."""
    modules = {site: site_modules(model.network, model.sites, site) for site in sites}
    readings, picked = _Readings(sites, range(len(next(iter(modules.values()))))), torch.tensor(list(places))
    with ExitStack() as stack:
        for site in sites:
            for layer, module in enumerate(modules[site]):
                stack.callback(module.register_forward_hook(partial(readings.pick, site, layer, picked)).remove)
        model.network.get_decoder()(torch.tensor([list(ids)], device=model.device), use_cache=False)
    return readings.complete(model.name)
