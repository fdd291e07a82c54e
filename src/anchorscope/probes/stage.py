"""From activations to probes and the `readouts` table, one site and position at a time.

Layers are independent once they share a regularisation strength, so they are fitted side by side, each reading only its
own activations. What computes (torch, scikit-learn) is imported once the answers are enough for probes: a rerun of a
run with too few says so at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.probes.fit import fit_layer
from anchorscope.probes.folds import folds_of
from anchorscope.probes.jackknife import LEFT_OUT_GROUPS, jackknife_layer, jackknife_layers, make_groups
from anchorscope.probes.probe import load_probes, probes_stem
from anchorscope.probes.record import (
    LEFT_OUT,
    MIRROR_READOUTS,
    READOUTS,
    TEXT_ONLY,
    LeftOutReadout,
    Readout,
    TextReadout,
    refit_name,
)
from anchorscope.progress import Advance, Notice, nobody
from anchorscope.store import Job, Store, Whole
from anchorscope.store.stage import Context
from anchorscope.study.terms import MIRROR, MIRRORED, QUESTION_ONLY, ReadPoint
from anchorscope.traces.activations import Activations
from anchorscope.traces.record import TRACES, Trace

if TYPE_CHECKING:
    from anchorscope.probes.fitter import ProbeFitter

SHARD_ROWS = 4096


def readouts_stage(store: Store, model: str, dataset: str, point: ReadPoint, notice: Notice = nobody) -> Whole[Readout]:
    """The probes of one read point, fitted and kept, and the `readouts` table: all conditions read out by them."""
    study, cell = store.study, store.results(model, dataset)
    activations, conditions = Activations(cell), study.traces.conditions

    def compute(advance: Advance) -> list[Readout]:
        # 1. who tests and who trains
        rows = list(activations.table)
        labels, clusters, folds = folds_of(rows, study.probes, study.seed)
        # 2. probes of the answer, and of the question alone
        from anchorscope.probes.fitter import ProbeFitter

        layers = activations.layers(point)
        fitter = ProbeFitter(labels, clusters, folds, study.probes, study.seed, advance)
        further = study.evidence.further if study.evidence is not None else []
        of_answer = fitter(activations.reader(point), layers, [*conditions, *further])
        before = ReadPoint(point.site, QUESTION_ONLY)
        of_question = fitter(activations.reader(before), layers, ["clean"], parts=1)
        refitted = [condition for condition in conditions if condition in study.probes.refit]
        refits = [
            fitter.refit(activations.reader(point), layers, condition, of_answer.strength) for condition in refitted
        ]
        # 3. what is kept of them
        strength = of_answer.strength
        if strength.edge:
            notice(
                f"{model}, {dataset}: the {strength.edge} of probes.strengths, {strength.value:g}, is best for "
                f"{point}; a wider range may give better probes"
            )
        if before not in study.traces.points:  # which keeps its own
            of_question.save(cell, before)
        of_answer.save(cell, point)
        passed = len(conditions)
        return [
            *_records(rows, conditions, of_answer.logits[:passed], of_answer.drift[:passed]),
            *_records(rows, further, of_answer.logits[passed:, :, :1]),
            *_records(rows, ["question_only"], of_question.logits, of_question.drift),
            *(_records(rows, MIRROR_READOUTS, mirrored(fitter)) if further else []),
            *(
                row
                for c, logits in zip(refitted, refits, strict=True)
                for row in _records(rows, [refit_name(c)], logits)
            ),
        ]

    def mirrored(fitter: ProbeFitter) -> NDArray[np.float32]:
        behind = ReadPoint(point.site, MIRROR)
        fitted = fitter(activations.reader(behind), activations.layers(behind), ["clean", *MIRRORED], parts=1)
        fitted.save(cell, behind)
        return fitted.logits

    inputs = {"traces": cell.origin(TRACES), "probes": study.probes.model_dump(mode="json"), "seed": study.seed}
    title = f"{model}, {dataset}: probing {point}"

    def steps() -> int:
        fitted = 6 if study.evidence is not None else 4
        return (fitted + len(set(study.probes.refit) & set(conditions))) * activations.layers(point)

    return Whole(title, cell, READOUTS.at(point), inputs, compute, steps, SHARD_ROWS)


def left_out_stage(store: Store, model: str, dataset: str, point: ReadPoint) -> Whole[LeftOutReadout]:
    """The `left_out` table of one read point: read-outs at some layers by probes fitted without some samples."""
    study, cell = store.study, store.results(model, dataset)
    activations, conditions = Activations(cell), study.traces.conditions[:2]
    refitted = [condition for condition in study.traces.conditions if condition in study.probes.refit]

    def compute(advance: Advance) -> list[LeftOutReadout]:
        rows = list(activations.table)
        labels, clusters, folds = folds_of(rows, study.probes, study.seed)
        from anchorscope.probes.fitter import side_by_side

        groups = make_groups(labels, clusters, study.seed)
        probes, record = load_probes(probes_stem(cell, point))
        strength = float(record["strength"]["C"])

        def one(layer: int) -> list[NDArray[np.float32]]:
            states = [activations.layer(condition, point, layer) for condition in conditions]
            read = [*jackknife_layer(states, labels, clusters, folds, strength, probes[layer], groups)]
            for condition in refitted:
                refit_states = activations.layer(condition, point, layer)
                fitted = fit_layer(refit_states, labels, clusters, folds, strength, seed=study.seed, parts=1)
                read += [*jackknife_layer([refit_states], labels, clusters, folds, strength, fitted, groups)]
            advance(1)
            return read

        at = jackknife_layers(len(probes))
        width = probes[0].weight.shape[-1]
        with side_by_side(len(rows), width) as jobs, ThreadPoolExecutor(jobs) as pool:
            read: Any = list(pool.map(one, at))
        return [
            LeftOutReadout(row.id, int(groups[i]), condition, layer, read[place][c][..., i])
            for place, layer in enumerate(at)
            for c, condition in enumerate([*conditions, *map(refit_name, refitted)])
            for i, row in enumerate(rows)
        ]

    inputs = {"readouts": cell.origin(READOUTS.at(point)), "groups": LEFT_OUT_GROUPS, "refit": refitted}
    title = f"{model}, {dataset}: leaving out, {point}"

    def steps() -> int:
        return len(jackknife_layers(activations.layers(point)))

    return Whole(title, cell, LEFT_OUT.at(point), inputs, compute, steps, SHARD_ROWS)


def text_only_stage(store: Store, model: str, dataset: str) -> Whole[TextReadout]:
    """The `text_only` table of one model and dataset: what words alone give away, in the same folds as the probes."""
    study, cell = store.study, store.results(model, dataset)

    def compute(advance: Advance) -> list[TextReadout]:
        rows = list(cell.table(TRACES))
        labels, clusters, folds = folds_of(rows, study.probes, study.seed)
        from anchorscope.probes.text_only import text_only

        logits = text_only([row.question for row in rows], [row.answer for row in rows], labels, clusters, folds)
        flat = logits.astype(np.float32).T  # (sample, repeat)
        return [TextReadout(row.id, values) for row, values in zip(rows, flat, strict=True)]

    dealt = {"repeats": study.probes.repeats, "folds": study.probes.folds}
    inputs = {"traces": cell.origin(TRACES), "probes": dealt, "seed": study.seed}
    return Whole(f"{model}, {dataset}: reading words alone", cell, TEXT_ONLY, inputs, compute, shard_rows=SHARD_ROWS)


def _records(
    rows: Sequence[Trace],
    conditions: Sequence[str],
    logits: NDArray[np.float32],
    drifts: NDArray[np.float32] | None = None,
) -> Iterator[Readout]:
    """Rows of the table from (condition, repeat, part, sample, layer). The clean pass does not drift."""
    nothing = np.empty((0, 0, 0), np.float32)
    for c, condition in enumerate(conditions):
        for i, row in enumerate(rows):
            read: Any = logits[c, :, :, i]  # (repeat, part, layer)
            moved: Any = nothing
            if drifts is not None and condition not in ("clean", "question_only"):
                moved = drifts[c, :, :, i]
            yield Readout(row.id, condition, read, moved)


# --- from jobs to stages


def text_only_of(context: Context, job: Job) -> Whole[TextReadout]:
    return text_only_stage(context.store, job.model, job.dataset)


def readouts_of(context: Context, job: Job) -> Whole[Readout]:
    return readouts_stage(context.store, job.model, job.dataset, job.read_point, context.notice)


def left_out_of(context: Context, job: Job) -> Whole[LeftOutReadout]:
    return left_out_stage(context.store, job.model, job.dataset, job.read_point)
