"""The runs of a page, and what they have together. All parts of the page are handed this one value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from anchorscope.errors import StoreError
from anchorscope.pathways.chart import Chart
from anchorscope.pathways.lookup import measured
from anchorscope.report.charts import charts_of
from anchorscope.store import Cell, Store
from anchorscope.study.terms import ReadPoint


class PageModel(NamedTuple):
    """One model of one run, as the page calls it."""

    store: Store
    run: int
    """Which of the page's runs."""
    model: str
    """As the study calls it."""
    label: str
    """As the page calls it: with the run's name where two runs have a model of one name."""

    def cell(self, dataset: str) -> Cell:
        """Where its tables of a dataset are."""
        return self.store.results(self.model, dataset)


@dataclass(frozen=True)
class PageRuns:
    """One run, or several side by side."""

    stores: tuple[Store, ...]

    @cached_property
    def names(self) -> list[str]:
        """Names that tell the runs apart: those of their studies or folders, else A and B."""
        for names in (
            [store.study.name for store in self.stores],
            [store.root.resolve().parent.name for store in self.stores],
        ):
            if len(set(names)) == len(names):
                return names
        return [f"run {chr(ord('A') + place)}" for place in range(len(self.stores))]

    @cached_property
    def models(self) -> list[PageModel]:
        """The models of all runs, in their order."""
        names = [model.name for store in self.stores for model in store.study.models]
        return [
            PageModel(store, run, m.name, m.name if names.count(m.name) == 1 else f"{m.name} ({self.names[run]})")
            for run, store in enumerate(self.stores)
            for m in store.study.models
        ]

    @cached_property
    def datasets(self) -> list[str]:
        """The datasets of all runs, each once."""
        return list(dict.fromkeys(dataset.name for store in self.stores for dataset in store.study.datasets))

    @cached_property
    def points(self) -> list[ReadPoint]:
        """Where something was read and has numbers, in the runs' order."""
        points = dict.fromkeys(point for store in self.stores for point in store.study.traces.points)
        there = [point for point in points if any(any(measured(store, point)) for store in self.stores)]
        if not there:
            raise StoreError(
                f"{self.stores[0].root} has no numbers yet, so a report would be empty",
                "Run: anchorscope run STUDY. It makes only what is missing, also in a run of version 0.2.0. If that "
                "was done, no dataset had enough right answers: set a larger `sample` in the study.",
            )
        return there

    @cached_property
    def charts(self) -> list[Chart]:
        """Every chart that the runs can have."""
        return list(charts_of([store.study for store in self.stores]).values())
