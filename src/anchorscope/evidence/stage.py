"""From read-outs to the `evidence` table of every cell, on which claims and their figures rest."""

from __future__ import annotations

from typing import Any

from anchorscope.evidence.experiment import CellData
from anchorscope.evidence.experiments import experiments, registered
from anchorscope.evidence.record import EVIDENCE, EXPERIMENT_STAGES, EvidenceLine
from anchorscope.evidence.transfer import cells_with_readouts
from anchorscope.probes.record import LEFT_OUT, PROMPTS, READOUTS, SALIENCY, WITHIN
from anchorscope.progress import Advance
from anchorscope.store import Job, Kind, Store, Whole
from anchorscope.store.stage import Context
from anchorscope.study.terms import ReadPoint

SHARD_ROWS = 64


def evidence_stage(store: Store, model: str, dataset: str, point: ReadPoint) -> Whole[EvidenceLine]:
    """The `evidence` table of one model, dataset and read point. All cells of the study must have read-outs."""
    cell = CellData(store, model, dataset, point)
    others = cells_with_readouts(cell)

    def compute(advance: Advance) -> list[EvidenceLine]:
        lines: list[EvidenceLine] = []
        for experiment in experiments():
            lines += experiment.lines(cell)
            advance(1)
        return lines

    inputs: dict[str, Any] = {
        "readouts": {f"{m}/{d}": store.results(m, d).origin(READOUTS.at(point)) for m, d in others},
        "further": {name: cell.cell.origin(kind) for name, kind in _further(cell).items()},
        "left_out": cell.cell.origin(LEFT_OUT.at(point)),
        "resamples": store.study.probes.resamples,
        "seed": store.study.seed,
    }
    if own := registered():
        inputs["experiments"] = own
    title = f"{model}, {dataset}: evidence at {point.site}, {point.position}"
    steps = len(experiments())
    return Whole(title, cell.cell, EVIDENCE.at(point), inputs, compute, lambda: steps, SHARD_ROWS)


def _further(cell: CellData) -> dict[str, Kind[Any]]:
    """The tables of experiments that the cell has, by the name of their kind."""
    kinds: dict[str, Kind[Any]] = {kind.name: kind.at(cell.point) for kind in (WITHIN, PROMPTS, SALIENCY)}
    for stage in EXPERIMENT_STAGES:
        kinds |= {kind.name: kind.at(cell.point) if stage.per_point else kind for kind in stage.tables}
    return {name: kind for name, kind in kinds.items() if cell.cell.entry(kind) is not None}


def stage_of(context: Context, job: Job) -> Whole[EvidenceLine]:
    """The stage that a job asks for."""
    return evidence_stage(context.store, job.model, job.dataset, job.read_point)
