"""An experiment: what it measures of a cell, the claims that rest on it, and the charts that show it.

A new experiment is one file with one `Experiment`, and one entry in evidence/experiments.py, or a call of `register`.
Its numbers are then in the `numbers` table, its claims in the ledger, its charts among the figures and in the report,
and its own stages, where it has some, in `status` and in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from anchorscope.evidence.anchored import Groups
from anchorscope.evidence.claim import Claim
from anchorscope.pathways.chart import Chart
from anchorscope.pathways.intervals import Resamples, resample
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series
from anchorscope.pathways.widening import Family, widenings
from anchorscope.probes.readouts import Readouts
from anchorscope.probes.recorded import Recorded, read_left_out, read_readouts
from anchorscope.store import Cell, StageDef, Store
from anchorscope.store.stage import with_evidence
from anchorscope.study import Study
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.activations import Activations

RESAMPLED = "by question"
"""How resamples are drawn, among the inputs of `numbers`: by name, the same for all models of a dataset."""


@dataclass(frozen=True)
class CellData:
    """What experiments are made of: the tables of one model, dataset and read point, read when they are needed."""

    store: Store
    """The run."""
    model: str
    """The model's name."""
    dataset: str
    """The dataset's name."""
    point: ReadPoint
    """Where states were read."""

    @property
    def study(self) -> Study:
        """What was asked."""
        return self.store.study

    @property
    def cell(self) -> Cell:
        """Where the tables are."""
        return self.store.results(self.model, self.dataset)

    @cached_property
    def recorded(self) -> Recorded:
        """The read-outs of all passes."""
        return read_readouts(self.store, self.model, self.dataset, self.point)

    @property
    def readouts(self) -> Readouts:
        """Those of the conditions."""
        return self.recorded.readouts

    @cached_property
    def drawn(self) -> Resamples:
        """The resamples that all lines share; questions of the dataset count as often in every model."""
        readouts, study = self.readouts, self.study
        names = [f"{self.dataset}/{row.id}" for row in self.recorded.rows]
        return resample(readouts.clusters, readouts.repeats, study.probes.resamples, study.seed, names)

    @cached_property
    def groups(self) -> Groups:
        """Q-Anchored and A-Anchored answers at the middle layer."""
        return Groups(self.readouts)

    @cached_property
    def widenings(self) -> dict[Family, float]:
        """By how much intervals are wider for what training adds."""
        left_out = read_left_out(self.store, self.model, self.dataset, self.point)
        return widenings(self.readouts, left_out, self.recorded.refit)

    def widening(self, key: Key) -> float:
        """By how much the interval of a number is wider for what training adds."""
        return self.widenings.get(Family.of(key), 1.0)

    @cached_property
    def activations(self) -> Activations:
        """The states themselves."""
        return Activations(self.cell)

    @cached_property
    def place(self) -> dict[str, int]:
        """By the question's id, the place of a sample."""
        return {row.id: i for i, row in enumerate(self.recorded.rows)}


@dataclass(frozen=True)
class Experiment:
    """One experiment."""

    name: str
    """Name of the experiment, in the `numbers` table and in messages."""
    series: Callable[[CellData, Collection[Key]], Iterable[Series]]
    """What it measures of a cell: its numbers with some keys; nothing where a table that it needs was not made."""
    statistics: tuple[str, ...]
    """Names of the numbers that it can make."""
    claims: tuple[Claim, ...] = ()
    """Claims that rest on it."""
    charts: tuple[Chart, ...] = ()
    """Charts that show it."""
    tables: tuple[Key, ...] = ()
    """Keys of further numbers, which headlines, pages and tables of results show."""
    stages: tuple[StageDef, ...] = ()
    """Stages that make tables of its own."""
    optional: bool = False
    """Whether its claims are left out of datasets on which it measured nothing, and not told as not measured."""
    wanted: Callable[[Study], bool] = with_evidence
    """Whether a run of a study makes it."""

    @property
    def claimed(self) -> set[Key]:
        """Keys of the numbers that its claims rest on."""
        return {key for claim in self.claims for key in claim.measure.keys}

    @property
    def keys(self) -> set[Key]:
        """Keys of all numbers that it names."""
        return self.claimed | {key for chart in self.charts for key in chart.keys} | set(self.tables)
