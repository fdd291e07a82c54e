"""The numbers of a run, read back by their keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from anchorscope.errors import AnchorscopeError, StoreError, did_you_mean
from anchorscope.pathways.record import NUMBERS, Key, NumberLine, Origin, Statistic
from anchorscope.pathways.series import Line
from anchorscope.store import Cell, Store
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
        hint = "The table is empty: run the stage `numbers` first."
    elif point in points:
        hint = "The table has numbers for it, but of other models or datasets, or of other conditions than charts show."
    else:
        hint = did_you_mean(point, points)
    return AnchorscopeError(f"nothing to draw for {point}", hint)


def too_few(line: Sequence[Statistic]) -> bool:
    """Whether this was measured, but no layer had enough samples."""
    return bool(line) and all(row.value is None for row in line)


def measured(store: Store, point: ReadPoint) -> Iterator[tuple[Origin, Cell]]:
    """The models and datasets of a run that have numbers, and where."""
    for model in store.study.models:
        for dataset in store.study.datasets:
            cell = store.results(model.name, dataset.name)
            if cell.entry(NUMBERS.at(point)) is not None:
                yield Origin(model.name, dataset.name, point), cell


Lines = Mapping[Key, Line]
"""Lines of one model and dataset."""


def read_lines(cell: Cell, point: ReadPoint, replicates: bool = True) -> dict[Key, Line]:
    """All lines of a cell; without their resamples, which take most of the table, where these are not needed."""
    names = [field.name for field in fields(NumberLine)]
    columns = names if replicates else names[:-1]
    batches = cell.table(NUMBERS.at(point)).batches(columns)
    lines = [Line.read(NumberLine(**{"replicates": [], **row})) for batch in batches for row in batch.to_pylist()]
    return {line.key: line for line in lines}


def lines_of(store: Store, point: ReadPoint) -> dict[str, dict[str, Lines]]:
    """The lines of every model and dataset that has numbers, with their resamples."""
    by_model: dict[str, dict[str, Lines]] = {}
    for origin, cell in measured(store, point):
        by_model.setdefault(origin.model, {})[origin.dataset] = read_lines(cell, point)
    return by_model


def read_statistics(store: Store, point: ReadPoint) -> Iterator[Statistic]:
    """The numbers of every model and dataset of a run, row by row, as charts draw them."""
    cells = list(measured(store, point))
    if not cells:
        raise no_numbers(store, point)
    for origin, cell in cells:
        for line in read_lines(cell, point, replicates=False).values():
            yield from line.rows(origin)


def no_numbers(store: Store, point: ReadPoint) -> StoreError:
    """The error of a run that has none."""
    return StoreError(
        f"{store.root} has no numbers at {point.site}, {point.position} yet",
        "Run: anchorscope run STUDY. It makes only what is missing, also in a run of version 0.2.0. If that was done, "
        "no dataset had enough right answers: set a larger `sample` in the study.",
    )


def read_line(store: Store, origin: Origin, key: Key) -> list[Statistic]:
    """The rows of one line, ascending by layer. A word that the table does not have is answered with the nearest."""
    cell = store.results(origin.model, origin.dataset)
    if cell.entry(NUMBERS.at(origin.point)) is None:
        raise no_numbers(store, origin.point)
    lines = read_lines(cell, origin.point, replicates=False)
    if key in lines:
        return list(lines[key].rows(origin))
    raise unknown_key(key, lines)


def unknown_key(key: Key, known: Collection[Key]) -> StoreError:
    """The error of a key that names no number, with the nearest one that does."""
    for name, word in key._asdict().items():
        words = {getattr(other, name) for other in known}
        if word not in words:
            return StoreError(f"there is no number with {name} '{word}'; {did_you_mean(word, words)}")
    nearest = max(known, key=lambda other: sum(a == b for a, b in zip(key, other, strict=True)))
    return StoreError(f"there is no number {' | '.join(key)}", f"The nearest one is {' | '.join(nearest)}.")
