"""Rows of the `pathways` tables of a run, and those that measure what is asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from anchorscope.errors import AnchorscopeError, StoreError, did_you_mean
from anchorscope.pathways.record import PATHWAYS, Key, Origin, Statistic
from anchorscope.store import Cell, Kind, Store
from anchorscope.study.terms import ReadPoint


@dataclass(frozen=True)
class ChartNumbers:
    """The rows that were asked for, of one read point."""

    rows: dict[tuple[Key, str, str], list[Statistic]]
    """By key, model and dataset; ascending by layer."""

    def of(self, key: Key, model: str, dataset: str) -> list[Statistic]:
        """The rows of one line; none if this was not measured."""
        return self.rows.get((key, model, dataset), [])


def collect(
    rows: Iterable[Statistic], keys: Collection[Key], models: Sequence[str], datasets: Sequence[str], point: ReadPoint
) -> ChartNumbers:
    """Keep the rows that `keys` ask for. Streams: the table may be far larger than what is drawn."""
    wanted, shown = frozenset(keys), frozenset((model, dataset) for model in models for dataset in datasets)
    lines: defaultdict[tuple[Key, str, str], dict[int, Statistic]] = defaultdict(dict)
    points: set[str] = set()
    for row in rows:
        points.add(f"{row.site} at {row.position}")
        if (row.site, row.position) != point or (row.model, row.dataset) not in shown or row.key not in wanted:
            continue
        by_layer = lines[row.key, row.model, row.dataset]
        if row.layer in by_layer:
            raise ValueError(f"two rows of {row.model}, {row.dataset}, layer {row.layer} for {row.key}")
        by_layer[row.layer] = row
    if not lines:
        raise _nothing(str(point), points)
    return ChartNumbers({line: [by_layer[layer] for layer in sorted(by_layer)] for line, by_layer in lines.items()})


def _nothing(point: str, points: set[str]) -> AnchorscopeError:
    if not points:
        hint = "The table is empty: run the stage `pathways` first."
    elif point in points:
        hint = "The table has numbers for it, but of other models or datasets, or of other conditions than charts show."
    else:
        hint = did_you_mean(point, points)
    return AnchorscopeError(f"nothing to draw for {point}", hint)


def too_few(line: Sequence[Statistic]) -> bool:
    """Whether this was measured, but no layer had enough samples."""
    return bool(line) and all(row.value is None for row in line)


def measured(store: Store, kind: Kind[Any], point: ReadPoint) -> Iterator[tuple[Origin, Cell]]:
    """The models and datasets of a run that have a table of this kind, and where."""
    for model in store.study.models:
        for dataset in store.study.datasets:
            cell = store.results(model.name, dataset.name)
            if cell.entry(kind.at(point)) is not None:
                yield Origin(model.name, dataset.name, point), cell


def read_pathways(store: Store, point: ReadPoint) -> Iterator[Statistic]:
    """The rows of every model and dataset of a run that has them."""
    cells = [cell for _, cell in measured(store, PATHWAYS, point)]
    if not cells:
        raise _no_pathways(store, point)
    for cell in cells:
        yield from cell.table(PATHWAYS.at(point))


def _no_pathways(store: Store, point: ReadPoint) -> StoreError:
    return StoreError(
        f"{store.root} has no pathways at {point.site}, {point.position} yet",
        "Run: anchorscope run STUDY; if that was done, no set had enough right answers: sample more.",
    )


def read_line(store: Store, origin: Origin, key: Key) -> list[Statistic]:
    """The rows of one line, ascending by layer. A word that the table does not have is answered with the nearest."""
    cell, kind = store.results(origin.model, origin.dataset), PATHWAYS.at(origin.point)
    if cell.entry(kind) is None:
        raise _no_pathways(store, origin.point)
    words: dict[str, set[str]] = {name: set() for name in Key._fields}
    rows: list[Statistic] = []
    for row in cell.table(kind).where(key._asdict(), words):
        rows.append(row)
    for name, value in key._asdict().items():
        if not rows and value not in words[name]:
            raise StoreError(f"the table has no {name} '{value}'; {did_you_mean(value, words[name])}")
    if not rows:
        raise StoreError(
            f"the pathways table has no line with {', '.join(f'{k} {v}' for k, v in key._asdict().items())}"
        )
    return sorted(rows, key=lambda row: row.layer)
