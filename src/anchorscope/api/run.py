"""A run opened from Python, with its tables as Arrow, pandas or polars, its arrays and its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anchorscope import doors
from anchorscope.errors import StoreError, did_you_mean
from anchorscope.pathways.headline import Headline, headlines
from anchorscope.pathways.lookup import read_line, read_statistics
from anchorscope.pathways.record import Key, Origin, Statistic
from anchorscope.probes.readouts import Readouts
from anchorscope.probes.recorded import read_readouts
from anchorscope.run.stages import tables
from anchorscope.run.status import RunStatus, status_of
from anchorscope.store import Cell, Kind, StageDef, Store
from anchorscope.store.files import path_of
from anchorscope.store.table import field_docs, schema_of
from anchorscope.study import Study
from anchorscope.study.terms import Condition, Position, ReadPoint, Site
from anchorscope.study.validation import check_word
from anchorscope.traces.activations import Activations

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Run:
    """The results of a study so far. `model` and `dataset` choose among several (default: all)."""

    def __init__(self, root: str | Path) -> None:
        self.store = Store.open(path_of(root))

    @property
    def root(self) -> Path:
        """The run's folder."""
        return self.store.root

    @property
    def study(self) -> Study:
        """The run's study."""
        return self.store.study

    @property
    def models(self) -> list[str]:
        """The names of the models."""
        return [model.name for model in self.study.models]

    @property
    def datasets(self) -> list[str]:
        """The names of the datasets."""
        return [dataset.name for dataset in self.study.datasets]

    def status(self) -> RunStatus:
        """The status of the run: what it has and what is missing."""
        return status_of(self.store)

    def __repr__(self) -> str:
        return f"Run('{self.root}': {', '.join(self.models)} on {', '.join(self.datasets)})"

    # --- tables

    def table(
        self,
        name: str,
        model: str | None = None,
        dataset: str | None = None,
        site: Site | None = None,
        position: Position | None = None,
    ) -> pa.Table:
        """A table as Arrow, by one of the names that `status` lists, without the name of the read point.

        The first columns give the model, dataset, site and position of each row. `.schema` documents every column, with
        the axes of nested lists.
        """
        stage, kind = self._table(name)
        places = self._tables(stage, kind, model, dataset, self._points(site, position))
        pieces = [self._piece(*place) for place in places if place[1].entry(place[0]) is not None]
        if not pieces:
            raise StoreError(
                f"{self.root} has no table '{name}' for this choice yet", "To see what it has, call: run.status()"
            )
        return pa.concat_tables(pieces)

    def pandas(self, name: str, *where: Any, **more: Any) -> pd.DataFrame:
        """The same table as a pandas DataFrame (needs pandas)."""
        doors.library("pandas", "run.pandas")
        return self.table(name, *where, **more).to_pandas()

    def polars(self, name: str, *where: Any, **more: Any) -> pl.DataFrame:
        """The same table as a polars DataFrame (needs polars)."""
        return doors.library("polars", "run.polars").from_arrow(self.table(name, *where, **more))

    def _table(self, name: str) -> tuple[StageDef, Kind[Any]]:
        """The kind of table with this name, and the stage that makes it."""
        known = tables()
        if name not in known:
            raise StoreError(f"there is no table '{name}'; {did_you_mean(name, known)}")
        return known[name]

    def _tables(
        self, stage: StageDef, kind: Kind[Any], model: str | None, dataset: str | None, points: Sequence[ReadPoint]
    ) -> Iterator[tuple[Kind[Any], Cell, dict[str, str]]]:
        """Each table of a kind that may exist, with its cell and the columns that identify it."""
        if stage.scope == "run":
            yield kind, self.store.together(), {}
            return
        for each_set in self._chosen("dataset", dataset, self.datasets):
            if stage.scope == "dataset":
                yield kind, self.store.questions(each_set), {"dataset": each_set}
                continue
            for each_model in self._chosen("model", model, self.models):
                cell, known = self.store.results(each_model, each_set), {"model": each_model, "dataset": each_set}
                if stage.per_point:
                    for point in points:
                        yield kind.at(point), cell, known | {"site": point.site, "position": point.position}
                else:
                    for each in [kind.part(name) for name in stage.parts] or [kind]:
                        yield each, cell, known

    def _piece(self, kind: Kind[Any], cell: Cell, known: dict[str, str]) -> pa.Table:
        """One table, with the columns that identify it in front."""
        table = pa.Table.from_batches(cell.table(kind).batches(), schema_of(kind.record))
        for place, (column, value) in enumerate((c, v) for c, v in known.items() if c not in table.column_names):
            table = table.add_column(place, column, pa.array([value] * len(table)))
        return table

    def documentation(self, name: str) -> dict[str, str]:
        """The meaning of each column of a table, with its unit and shape."""
        return field_docs(self._table(name)[1].record)

    # --- arrays

    def readouts(
        self,
        model: str | None = None,
        dataset: str | None = None,
        site: Site | None = None,
        position: Position | None = None,
    ) -> Readouts:
        """Calibrated, out-of-fold logits, (condition, repeat, part, sample, layer), with labels and clusters."""
        where = self._one("model", model, self.models), self._one("dataset", dataset, self.datasets)
        return read_readouts(self.store, *where, self._point(site, position)).readouts

    def activations(
        self,
        condition: Condition = "clean",
        model: str | None = None,
        dataset: str | None = None,
        site: Site | None = None,
        position: Position | None = None,
    ) -> NDArray[np.float32]:
        """(sample, layer, width), in the order of the `traces` table."""
        check_word("condition", condition, Condition)
        cell = self.store.results(self._one("model", model, self.models), self._one("dataset", dataset, self.datasets))
        stored, point = Activations(cell), self._point(site, position)
        return np.stack([stored.layer(condition, point, layer) for layer in range(stored.layers(point))], axis=1)

    def line(self, statistic: str, condition: str = "knockout", **key: str) -> list[Statistic]:
        """The rows of one statistic by layer, with intervals, for one model, dataset and read point.

        `key`: model, dataset, site and position, and split, anchor, correction, group and stratum as in the `numbers`
        table.
        """
        model = self._one("model", key.pop("model", None), self.models)
        dataset = self._one("dataset", key.pop("dataset", None), self.datasets)
        point = self._point(key.pop("site", None), key.pop("position", None))  # type: ignore[arg-type]
        for name in key:
            if name not in Key._fields:
                raise StoreError(f"there is no column '{name}'; {did_you_mean(name, Key._fields)}")
        return read_line(self.store, Origin(model, dataset, point), Key(statistic, condition, **key))  # type: ignore[arg-type]

    def headlines(self, site: Site | None = None, position: Position | None = None) -> list[Headline]:
        """The main numbers of every model and dataset."""
        return list(headlines(self.store, self._point(site, position)))

    # --- figures

    def draw(
        self,
        chart: str = "delta_p",
        *,
        model: str | None = None,
        dataset: str | None = None,
        site: Site | None = None,
        position: Position | None = None,
        axes: Axes | None = None,
        row: int = 0,
    ) -> Figure:
        """A chart by name, such as delta_p or auroc (docs/charts.md lists them). A notebook displays it.

        With `axes`, the panel of `model` in the chart's row `row` is drawn on them.
        """
        from anchorscope.report.figures import figure_of, panel_on

        point, datasets = self._point(site, position), self._chosen("dataset", dataset, self.datasets)
        if axes is None:
            models = self._chosen("model", model, self.models)
            return figure_of(chart, read_statistics(self.store, point), models, datasets, point)
        one = self._one("model", model, self.models)
        return panel_on(axes, chart, row, read_statistics(self.store, point), one, datasets, point)

    def write_figures(self, folder: str | Path | None = None) -> list[Path]:
        """Write all charts as PNG, SVG and PDF, each with a CSV and a caption (default folder: the run's own)."""
        from anchorscope.report.figures import write_figures

        points = self.study.traces.points
        places = [path_of(folder) / point.key if folder else None for point in points]
        pairs = zip(points, places, strict=True)
        return [path for point, place in pairs for path in write_figures(self.store, point, place)]

    # --- which of several

    def _points(self, site: Site | None, position: Position | None) -> list[ReadPoint]:
        points = [p for p in self.study.traces.points if site in (None, p.site) and position in (None, p.position)]
        if not points:
            listed = ", ".join(map(str, self.study.traces.points))
            place = f"{site or 'any site'}, {position or 'any position'}"
            raise StoreError(f"this run has no read point at {place}", f"It has: {listed}.")
        return points

    def _point(self, site: Site | None, position: Position | None) -> ReadPoint:
        """The read point asked for, or the study's first if none is named."""
        return self._points(site, position)[0]

    def _chosen(self, what: str, name: str | None, known: Sequence[str]) -> list[str]:
        if name is None:
            return list(known)
        if name not in known:
            raise StoreError(f"this run has no {what} '{name}'; {did_you_mean(name, known)}")
        return [name]

    def _one(self, what: str, name: str | None, known: Sequence[str]) -> str:
        chosen = self._chosen(what, name, known)
        if len(chosen) > 1:
            raise StoreError(f"this run has several {what}s", f"Choose one: {what}= one of {', '.join(known)}.")
        return chosen[0]
