"""What is timed: the bare engine, and our sweep and map.

Each works through all cases once and says after each batch how far it is: so contenders run in turns of single batches,
and a machine that is slower for a minute is so for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from cases import TWO, Case

from anchorscope.models.batches import plan_batches
from anchorscope.models.load import Model
from anchorscope.study import TraceSpec
from anchorscope.study.terms import Condition, Into, Site
from anchorscope.traces.budget import ENOUGH, make_budget
from anchorscope.traces.conditions import place_of
from anchorscope.traces.layout import Stream
from anchorscope.traces.tracer import Read, Tracer

SITES: tuple[Site, ...] = ("attn", "mlp", "resid")
MEMORY = TraceSpec().memory
ENOUGH_MAPPED = 4 * ENOUGH  # tokens of a batch: half of them have joined on average
Found = dict[Site, torch.Tensor]
Contender = Callable[[], Iterator[tuple[float, Found]]]
"""Works; yields the share that is done, and what was read."""


@torch.inference_mode()
def bare(model: Model, cases: Sequence[Case], batch: int) -> Iterator[tuple[float, Found]]:
    """One clean pass over the full prompts: the decoder alone, no cache, padded at the right, so without a mask."""
    decoder = model.network.get_decoder()
    ordered = sorted(cases, key=lambda case: len(case.ids))
    for start in range(0, len(ordered), batch):
        some = ordered[start : start + batch]
        ids = torch.zeros(len(some), max(len(case.ids) for case in some), dtype=torch.long)
        for row, case in enumerate(some):
            ids[row, : len(case.ids)] = torch.tensor(case.ids)
        decoder(ids, use_cache=False)
        yield (start + len(some)) / len(ordered), {}


@dataclass(frozen=True)
class Ours:
    """Our sweeps and maps over some cases. The shared prefix is computed within the time."""

    model: Model
    cases: Sequence[Case]
    into: Into

    def tracer(self) -> Tracer:
        """Computes the shared prefix too."""
        case = self.cases[0]
        return Tracer(self.model, case.ids[: case.shared], SITES)

    def sweep(self, batch: int | None = None, conditions: tuple[Condition, ...] = TWO) -> Iterator[tuple[float, Found]]:
        """All layers and sites at the read position, under each condition; batches as a run plans them, or so large."""
        tracer = self.tracer()
        rows = [case.row(conditions, self.into, tracer.layers) for case in self.cases]
        budget = make_budget(self.model, MEMORY, len(tracer.shared_ids), len(conditions) * len(SITES))
        sizes = _sizes(rows)
        planned = _chunks(sizes, batch) if batch else plan_batches(sizes, budget.memory, budget.cost, enough=ENOUGH)
        done = 0
        for some in planned:
            reads = [
                Read(i, c, self.cases[row].read if conditions == TWO else self._place(row, condition))
                for c, condition in enumerate(conditions)
                for i, row in enumerate(some)
            ]
            found = tracer([rows[row] for row in some], reads)
            done += len(some)
            yield done / len(rows), found

    def _place(self, row: int, condition: Condition) -> int:
        return place_of(condition, self.cases[row].spans, "answer_last")

    def map(self) -> Iterator[tuple[float, Found]]:
        """Each layer cut alone, every layer read; batches as a run plans them."""
        tracer = self.tracer()
        rows = [case.map_row(self.into, tracer.layers) for case in self.cases]
        longest = max(len(row[0].ids) for row in rows)
        budget = make_budget(self.model, MEMORY, len(tracer.shared_ids), len(SITES) * (1 + tracer.layers), longest)
        done = 0
        for some in plan_batches(_sizes(rows), budget.memory, budget.cost, enough=ENOUGH_MAPPED):
            reads = [Read(i, s, self.cases[row].read) for i, row in enumerate(some) for s in range(1 + tracer.layers)]
            found = tracer([rows[row] for row in some], reads)
            done += len(some)
            yield done / len(rows), found


def _sizes(rows: Sequence[Sequence[Stream]]) -> list[int]:
    return [sum(len(stream.ids) for stream in row) for row in rows]


def _chunks(sizes: Sequence[int], batch: int) -> list[list[int]]:
    """So many at a time, those of similar size together."""
    ordered = sorted(range(len(sizes)), key=lambda row: sizes[row])
    return [ordered[start : start + batch] for start in range(0, len(ordered), batch)]
