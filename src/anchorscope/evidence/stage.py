"""The eighth stage: from read-outs to the `evidence` table of every cell, on which claims and their figures rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from anchorscope.answers.record import SAMPLED
from anchorscope.evidence.curves import chart_lines
from anchorscope.evidence.donors import donor_lines
from anchorscope.evidence.groups import (
    Groups,
    awareness_lines,
    boundary_lines,
    saliency_lines,
    shift_lines,
    stability_lines,
)
from anchorscope.evidence.lines import IntArray, line, mean_auroc
from anchorscope.evidence.mirror import mirror_lines
from anchorscope.evidence.record import EVIDENCE, Line
from anchorscope.evidence.support import support_lines
from anchorscope.evidence.transfer import knowing_lines, shared_rows, transfer_lines
from anchorscope.evidence.within import Answered, within_lines
from anchorscope.pathways.intervals import FloatArray, Resamples, resample
from anchorscope.pathways.widening import widenings
from anchorscope.probes.folds import folds_of
from anchorscope.probes.probe import load_probes, probes_stem
from anchorscope.probes.record import LEFT_OUT, PROMPTS, READOUTS, SALIENCY, WITHIN
from anchorscope.probes.recorded import Recorded, read_left_out, read_readouts
from anchorscope.progress import Advance
from anchorscope.store import Cell, Kind, Store, Whole
from anchorscope.store.table import as_arrays
from anchorscope.study.terms import QUESTION_ONLY, SUPPORTED, ReadPoint
from anchorscope.traces.activations import Activations
from anchorscope.traces.record import TRACES

STEPS = 9
MIN_SHARED = 30  # right and wrong answers to questions that both models were traced on


def evidence_stage(store: Store, model: str, dataset: str, point: ReadPoint) -> Whole[Line]:
    """The `evidence` table of one model, dataset and read point. All cells of the study must have read-outs."""
    study, cell = store.study, store.results(model, dataset)
    others = [
        (m.name, d.name)
        for m in study.models
        for d in study.datasets
        if store.results(m.name, d.name).entry(READOUTS.at(point)) is not None
    ]

    def compute(advance: Advance) -> list[Line]:
        made: list[Line] = []
        for lines in _Evidence(store, model, dataset, point).parts(others):
            made += lines
            advance(1)
        return made

    kinds: list[Kind[Any]] = [WITHIN, PROMPTS, SALIENCY]
    further = [kind for kind in kinds if cell.entry(kind.at(point)) is not None]
    inputs: dict[str, Any] = {
        "readouts": {f"{m}/{d}": store.results(m, d).origin(READOUTS.at(point)) for m, d in others},
        "further": {kind.name: cell.origin(kind.at(point)) for kind in further},
        "left_out": cell.origin(LEFT_OUT.at(point)),
        "resamples": study.probes.resamples,
        "seed": study.seed,
    }
    title = f"{model}, {dataset}: evidence at {point.site}, {point.position}"
    return Whole(title, cell, EVIDENCE.at(point), inputs, compute, lambda: STEPS, 64)


class _Evidence:
    """The experiments of one cell."""

    def __init__(self, store: Store, model: str, dataset: str, point: ReadPoint) -> None:
        self.store, self.study, self.model, self.dataset, self.point = store, store.study, model, dataset, point
        self.cell: Cell = store.results(model, dataset)
        self.recorded: Recorded = read_readouts(store, model, dataset, point)
        self.readouts = self.recorded.readouts
        self.drawn: Resamples = resample(
            self.readouts.clusters, self.readouts.repeats, self.study.probes.resamples, self.study.seed
        )
        self.groups = Groups(self.readouts)
        self.activations = Activations(self.cell)
        self.place = {row.id: i for i, row in enumerate(self.recorded.rows)}

    def parts(self, others: list[tuple[str, str]]) -> Iterator[list[Line]]:
        """The lines of each experiment, one experiment after the other."""
        yield list(self.chart())
        yield list(self.within())
        yield list(self.donors())
        yield list(mirror_lines(self.readouts.labels, self.recorded.further, self.drawn))
        yield list(self.support())
        yield list(self.answer_only())
        yield list(self.pathways())
        yield list(self.saliency())
        yield list(self.transfer(others))

    def chart(self) -> Iterator[Line]:
        """What claims about the chart rest on."""
        left_out = read_left_out(self.store, self.model, self.dataset, self.point)
        return chart_lines(self.readouts, self.drawn, self.study.seed, widenings(self.readouts, left_out))

    def within(self) -> Iterator[Line]:
        """Several answers to one question."""
        if self.cell.entry(WITHIN.at(self.point)) is None:
            return iter(())
        entry: Any = self.cell.entry(WITHIN.at(self.point))
        columns: dict[str, list[Any]] = {}
        logits: list[FloatArray] = []
        for batch in self.cell.table(WITHIN.at(self.point)).batches():
            for name in ("id", "correct", "logprob", "tokens", "times"):
                columns.setdefault(name, []).extend(batch.column(name).to_pylist())
            logits += as_arrays(batch.column("logits"))
        if not logits:
            return iter(())
        answered = Answered(
            np.array([self.place[name] for name in columns["id"]], dtype=np.int64),
            np.array(columns["correct"], dtype=bool),
            np.array(columns["logprob"]),
            np.array(columns["tokens"], dtype=float),
            np.array(columns["times"], dtype=float),
            entry["inputs"]["within"]["conditions"],
            np.stack(logits).transpose(1, 2, 0, 3),
        )
        return within_lines(answered, self.drawn)

    def donors(self) -> Iterator[Line]:
        """Token patching."""
        further, evidence = self.recorded.further, self.study.evidence
        assert evidence is not None
        rows = self.recorded.rows
        return donor_lines(
            self.readouts.labels,
            self.readouts.logits[0, :, 0],
            np.stack([further[name] for name in evidence.patched]),
            further["patched_control"] if any(row.controlled for row in rows) else None,
            np.array([row.block for row in rows], dtype=np.int64),
            self.drawn,
            self.study.seed,
        )

    def support(self) -> Iterator[Line]:
        """What the answer loses of its log-probability."""
        conditions = [name for name in SUPPORTED if name in self.readouts.conditions]
        values: dict[str, FloatArray] = {}
        for name in conditions:
            values[name] = self.activations.support(name).astype(np.float64)
        groups = self.groups
        return support_lines(self.readouts.labels, groups.clean, groups.clean + groups.change, values, self.drawn)

    def answer_only(self) -> Iterator[Line]:
        """AUROC with the question taken out: behind the prompt, and behind a BOS alone."""
        labels, n = self.readouts.labels, len(self.readouts.labels)
        passes = {"answer_bare": self.recorded.further["answer_bare"]}
        if "answer_only" in self.readouts.conditions:
            at = self.readouts.conditions.index("answer_only")
            passes["answer_only"] = self.readouts.logits[at, :, 0]
        for name, logits in passes.items():
            yield line("answer_only", "auroc", mean_auroc(labels, logits, self.drawn), n, name)

    def pathways(self) -> Iterator[Line]:
        """Boundary, awareness, stability of labels, and whether the shift has two groups."""
        rows, study, groups = self.recorded.rows, self.study, self.groups
        unknown = float("nan")
        yield from boundary_lines(
            groups,
            self.readouts.labels,
            self.readouts.probability,
            np.array([np.log(row.popularity) if row.popularity else unknown for row in rows]),
            self.entropy(),
            np.array([np.mean(row.logprobs) if row.logprobs else unknown for row in rows]),
            self.drawn,
        )
        _, clusters, folds = folds_of(rows, study.probes, study.seed)
        states = self.activations.layer("clean", self.point, groups.layer)
        yield from awareness_lines(groups, states, clusters, folds, self.drawn, study.seed)
        yield from shift_lines(groups)
        members, prompts = self.prompts()
        yield from stability_lines(groups, self.drawn, members, prompts)

    def entropy(self) -> FloatArray:
        """(sample): entropy of the distinct answers that were sampled, in nats; nan where none were."""
        values = np.full(len(self.place), np.nan)
        if self.cell.entry(SAMPLED) is not None:
            for row in self.cell.table(SAMPLED):
                share = np.array(row.times) / sum(row.times)
                values[self.place[row.id]] = -(share * np.log(share)).sum()
        return values

    def prompts(self) -> tuple[IntArray, list[FloatArray]]:
        """Which samples were asked with other shots, and their logits: (clean or knockout, sample) each."""
        kind = PROMPTS.at(self.point)
        if self.cell.entry(kind) is None:
            return np.empty(0, np.int64), []
        found: dict[int, dict[int, FloatArray]] = {}
        for batch in self.cell.table(kind).batches():
            names, numbers = batch.column("id").to_pylist(), batch.column("prompt").to_pylist()
            for name, number, logits in zip(names, numbers, as_arrays(batch.column("logits")), strict=True):
                found.setdefault(number, {})[self.place[name]] = logits[:, :, self.groups.layer].mean(axis=1)
        members = np.array(list(next(iter(found.values()))), dtype=np.int64) if found else np.empty(0, np.int64)
        return members, [np.stack([each[i] for i in members], axis=1) for each in found.values()]

    def saliency(self) -> Iterator[Line]:
        """Attention times gradient."""
        kind = SALIENCY.at(self.point)
        if self.cell.entry(kind) is None:
            return iter(())
        rows = list(self.cell.table(kind))
        members = np.array([self.place[row.id] for row in rows], dtype=np.int64)
        of = {name: np.array([sum(getattr(row, name)) for row in rows]) for name in ("of_logit", "of_loss")}
        return saliency_lines(self.groups, members, of, self.drawn)

    def transfer(self, others: list[tuple[str, str]]) -> Iterator[Line]:
        """Other sets' probes, and other models' states of the same questions."""
        labels, layer = self.readouts.labels, self.groups.layer
        states = self.activations.layer("clean", self.point, layer)
        stems = {d: probes_stem(self.store.results(m, d), self.point) for m, d in others if m == self.model}
        probes = {name: load_probes(stem)[0][layer] for name, stem in stems.items() if name != self.dataset}
        yield from transfer_lines(labels, states, probes, self.readouts.logits[0, :, 0, :, layer], self.drawn)
        models = [m for m, d in others if d == self.dataset and m != self.model]
        before = ReadPoint(self.point.site, QUESTION_ONLY)
        for other in models:
            cell = self.store.results(other, self.dataset)
            theirs = Activations(cell)
            mine, its = shared_rows([[row.id for row in self.recorded.rows], [row.id for row in cell.table(TRACES)]])
            middle = round((theirs.layers(before) - 1) / 2)
            clusters = np.array([row.cluster for row in self.recorded.rows])
            if min(int(labels[mine].sum()), int((~labels[mine]).sum())) >= MIN_SHARED:
                yield from knowing_lines(
                    labels,
                    clusters,
                    mine,
                    self.activations.layer("clean", before, layer)[mine],
                    {other: theirs.layer("clean", before, middle)[its]},
                    self.drawn,
                    self.readouts.repeats,
                    self.study.seed,
                )
