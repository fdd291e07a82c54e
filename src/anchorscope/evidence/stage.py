"""The `numbers` table of every cell: the numbers that charts, claims, headlines and pages name, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anchorscope.evidence.experiment import RESAMPLED, CellData, Experiment
from anchorscope.evidence.experiments import MADE, digest_of, experiments_of, keys_of
from anchorscope.evidence.record import EXPERIMENT_STAGES
from anchorscope.evidence.transfer import cells_with_readouts
from anchorscope.pathways.record import NUMBERS, NumberLine
from anchorscope.pathways.series import Series, to_lines
from anchorscope.probes.record import LEFT_OUT, READOUTS, SALIENCY, WITHIN
from anchorscope.progress import Advance, counted
from anchorscope.store import Job, Kind, Store, Whole
from anchorscope.store.stage import Context
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import MASS

SHARD_ROWS = 256


def numbers_stage(store: Store, model: str, dataset: str, point: ReadPoint) -> Whole[NumberLine]:
    """The `numbers` table of one model, dataset and read point. All cells of the study must have read-outs.

    An experiment or a key that is new adds its lines to the table of a finished run, and leaves the others as they are.
    """
    cell = CellData(store, model, dataset, point)
    chosen = experiments_of(store.study)
    names = {experiment.name: digest_of(experiment) for experiment in chosen}

    def compute(advance: Advance) -> list[NumberLine]:
        before = _lines_before(cell, inputs)
        lines: list[NumberLine] = []
        for experiment in chosen:
            with counted(advance, len(keys_of(experiment))) as of_experiment:
                lines += before.get(experiment.name) or _measured(cell, experiment, of_experiment)
        return lines

    inputs: dict[str, Any] = {
        MADE: names,
        "readouts": {f"{m}/{d}": store.results(m, d).origin(READOUTS.at(point)) for m, d in cells_with_readouts(cell)},
        "further": {name: cell.cell.origin(kind) for name, kind in _further(cell).items()},
        "left_out": cell.cell.origin(LEFT_OUT.at(point)),
        "resamples": store.study.probes.resamples,
        "resampled": RESAMPLED,
        "seed": store.study.seed,
    }
    title = f"{model}, {dataset}: numbers at {point.site}, {point.position}"
    kind = NUMBERS.at(point)
    steps = sum(len(keys_of(experiment)) for experiment in chosen)
    return Whole(title, cell.cell, kind, inputs, compute, lambda: steps, SHARD_ROWS, renewed=True)


def _measured(cell: CellData, experiment: Experiment, advance: Advance) -> list[NumberLine]:
    keys, claimed = keys_of(experiment), keys_of(experiment, claimed=True)

    def series() -> Iterator[Series]:
        for one in experiment.series(cell, keys):
            yield one
            advance(1)

    return to_lines(experiment.name, series(), claimed)


def _lines_before(cell: CellData, inputs: dict[str, Any]) -> dict[str, list[NumberLine]]:
    """The lines of an earlier table that are still right, by experiment: made of the same tables for the same keys."""
    kind = NUMBERS.at(cell.point)
    entry = cell.cell.entry(kind)
    if entry is None or not cell.cell.complete(kind):
        return {}
    before: dict[str, str] = entry["inputs"].get(MADE, {})
    if cell.cell.outdated(kind, {**inputs, MADE: before}):
        return {}
    lines: dict[str, list[NumberLine]] = {}
    for line in cell.cell.table(kind):
        if before.get(line.experiment) == inputs[MADE].get(line.experiment):
            lines.setdefault(line.experiment, []).append(line)
    return lines


def _further(cell: CellData) -> dict[str, Kind[Any]]:
    """The tables of experiments that the cell has, by the name of their kind."""
    kinds: dict[str, Kind[Any]] = {kind.name: kind.at(cell.point) for kind in (WITHIN, SALIENCY)}
    kinds |= {MASS.name: MASS}
    for stage in EXPERIMENT_STAGES:
        kinds |= {kind.name: kind.at(cell.point) if stage.per_point else kind for kind in stage.tables}
    return {name: kind for name, kind in kinds.items() if cell.cell.entry(kind) is not None}


def stage_of(context: Context, job: Job) -> Whole[NumberLine]:
    """The stage that a job asks for."""
    return numbers_stage(context.store, job.model, job.dataset, job.read_point)
