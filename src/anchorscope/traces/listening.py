"""The states of a model while it answers, without a second pass: hooks that stay as long as the generation takes.

All prompts of a batch end in the last column of its first forward, and every later forward has one column. So the last
column of each forward is all there is to keep: the state at the prompt's last token, and at each token of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import nn

from anchorscope.answers.generate import Heard
from anchorscope.errors import ModelError
from anchorscope.models.load import Model
from anchorscope.models.sites import site_modules
from anchorscope.study.terms import Site


class Listening(Heard):
    """Hears one call of a Generator: `with Listening(model, sites) as heard: generator(prompts, heard)`.

    What it kept can be asked for afterwards, also outside of the `with`. A batch that failed leaves nothing.
    """

    def __init__(self, model: Model, sites: Sequence[Site]) -> None:
        self.model, self.sites = model, tuple(sites)
        self._modules = {site: site_modules(model.network, model.sites, site) for site in self.sites}
        self._hooks = ExitStack()
        self._batch: _HeardBatch | None = None
        self._states: dict[int, dict[Site, torch.Tensor]] = {}  # by the prompt's number in the call

    def __enter__(self) -> Listening:
        with ExitStack() as hooks:  # none stays if one cannot be set
            for site, modules in self._modules.items():
                for layer, module in enumerate(modules):
                    hooks.callback(module.register_forward_hook(partial(self._hear, site, layer)).remove)
            self._hooks = hooks.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()
        self._batch = None

    def states(self, row: int) -> dict[Site, torch.Tensor]:
        """The states of one prompt and its answer: (token, layer, width), on the CPU, in the model's dtype.

        The first token is the prompt's last one, then come the answer's. None is missing: the generator reads the last
        one too, to see whether the answer ends there, also where the answer is as long as it may be.
        """
        if row not in self._states:
            raise ValueError(f"the states of prompt {row} were not read to its end")
        return self._states[row]

    def start(self, rows: Sequence[int]) -> None:
        if not self._states.keys().isdisjoint(rows):
            raise ValueError("a Listening reads one call of a generator; make a new one for the next call")
        self._batch = _HeardBatch(rows)

    def step(self, slots: Mapping[int, int]) -> None:
        """A forward was made, for these rows of the batch."""
        batch, wanted = self._begun(), sum(map(len, self._modules.values()))
        if batch.heard != wanted:
            raise ModelError(
                f"{self.model.name}: a pass gave {batch.heard} outputs of its sites instead of {wanted}",
                "Generate inside `with`. If you do, check the model with: anchorscope doctor MODEL",
            )
        batch.step(slots)

    def end(self) -> None:
        self._states.update(self._begun().complete(tuple(self._modules)))
        self._batch = None

    def _begun(self) -> _HeardBatch:
        if self._batch is None:
            raise ValueError("no batch has begun")
        return self._batch

    def _hear(self, site: Site, layer: int, module: nn.Module, inputs: Any, output: Any) -> None:
        """After a site: copy the last column, as a view would hold all the others too.

        A short path: it is walked in every layer, with nothing in the processor's caches but weights.
        """
        batch = self._batch
        if batch is None:
            return  # between batches the model may be asked something else
        states = output[0] if isinstance(output, tuple) else output
        if states.shape[1] > 1:
            states = states[:, -1:]
        if site not in batch.places:
            batch.lay_out(site, len(self._modules[site]), states)
        batch.places[site][layer].copy_(states)
        batch.heard += 1


class _HeardBatch:
    """What is kept of one batch, forward by forward; nothing waits for the device until the end."""

    def __init__(self, rows: Sequence[int]) -> None:
        self.places: dict[Site, tuple[torch.Tensor, ...]] = {}
        """Where each layer's states of the forward that is being made go: (slot, 1, width)."""
        self.heard = 0
        """How many have gone there."""
        self._rows = rows
        self._made: dict[Site, torch.Tensor] = {}  # all of these places: (layer, slot, 1, width)
        self._steps: list[tuple[dict[Site, torch.Tensor], Mapping[int, int]]] = []

    def lay_out(self, site: Site, layers: int, states: torch.Tensor) -> None:
        """Make places for states like these: one piece for all layers, as small ones leave holes in the heap."""
        self._made[site] = states.new_empty(layers, *states.shape)
        self.places[site] = self._made[site].unbind()

    def step(self, slots: Mapping[int, int]) -> None:
        """A forward is over: which slot of it each row has. Other slots are of rows that have ended."""
        self._steps.append((self._made, slots))
        self.places, self._made, self.heard = {}, {}, 0

    def complete(self, sites: Sequence[Site]) -> dict[int, dict[Site, torch.Tensor]]:
        """Each row's states in one piece of their own."""
        states = {}
        for number, row in enumerate(self._rows):
            kept = [(by_site, slots[number]) for by_site, slots in self._steps if number in slots]
            states[row] = {
                site: torch.stack([by_site[site][:, slot, 0] for by_site, slot in kept]).cpu() for site in sites
            }
        return states
