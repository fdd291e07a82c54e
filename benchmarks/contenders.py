"""What is timed: the bare engine, and our sweep and map. Each is a function that works through all cases once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from cases import TWO, Case

from anchorscope.batching import plan_batches
from anchorscope.budget import ENOUGH
from anchorscope.conditions import Condition, place_of
from anchorscope.knockout import Into
from anchorscope.models.load import Model
from anchorscope.models.sites import Site
from anchorscope.tracing import Read, Tracer

SITES: tuple[Site, ...] = ("attn", "mlp", "resid")
Contender = Callable[[], object]


def chunks(cases: Sequence[Case], batch: int, key: Callable[[Case], int]) -> list[list[Case]]:
    """Cases of similar size together."""
    ordered = sorted(cases, key=key)
    return [list(ordered[i : i + batch]) for i in range(0, len(ordered), batch)]


@torch.inference_mode()
def bare(model: Model, cases: Sequence[Case], batch: int) -> None:
    """One clean pass over the full prompts: the decoder alone, no cache, padded at the right, so without a mask."""
    decoder = model.network.get_decoder()
    for some in chunks(cases, batch, lambda case: len(case.ids)):
        longest = max(len(case.ids) for case in some)
        ids = torch.zeros(len(some), longest, dtype=torch.long)
        for row, case in enumerate(some):
            ids[row, : len(case.ids)] = torch.tensor(case.ids)
        decoder(ids, use_cache=False)


@dataclass(frozen=True)
class Ours:
    """Our sweeps and maps over some cases."""

    model: Model
    cases: Sequence[Case]
    into: Into

    def tracer(self) -> Tracer:
        """Computes the shared prefix too."""
        case = self.cases[0]
        return Tracer(self.model, case.ids[: case.shared], SITES)

    def sweep(self, batch: int, conditions: tuple[Condition, ...] = TWO) -> list[dict[Site, torch.Tensor]]:
        """All layers and sites at the read position, under each condition, the prefix included in the time."""
        tracer, found = self.tracer(), []
        size = lambda case: sum(len(stream.ids) for stream in case.row(conditions, self.into, tracer.layers))  # noqa: E731
        for some in chunks(self.cases, batch, size):
            rows = [case.row(conditions, self.into, tracer.layers) for case in some]
            reads = [
                Read(i, c, case.read if conditions == TWO else place_of(condition, case.spans, "answer_last"))
                for c, condition in enumerate(conditions)
                for i, case in enumerate(some)
            ]
            found.append(tracer(rows, reads))
        return found

    def map(self, row_slots: int | None = None) -> list[dict[Site, torch.Tensor]]:
        """Each layer cut alone, every layer read; batches as a run plans them."""
        tracer, found = self.tracer(), []
        if row_slots is not None:
            tracer.row_slots = row_slots
        rows = [case.map_row(self.into, tracer.layers) for case in self.cases]
        lengths = [sum(len(stream.ids) for stream in row) for row in rows]
        for batch in plan_batches(lengths, sys.maxsize, enough=2 * ENOUGH):
            reads = [Read(i, s, self.cases[row].read) for i, row in enumerate(batch) for s in range(1 + tracer.layers)]
            found.append(tracer([rows[row] for row in batch], reads))
        return found
