"""The numbers behind the charts: rows of the `pathways` table, found by what they measure."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from anchorscope.errors import AnchorscopeError, did_you_mean
from anchorscope.pathways import Statistic


class Key(NamedTuple):
    """What a number measures, whichever model, dataset and layer it is of."""

    statistic: str
    condition: str
    split: str
    anchor: str
    correction: str = "none"
    group: str = "all"
    stratum: str = "all"


@dataclass(frozen=True)
class Numbers:
    """The rows that charts may draw, of one site and position."""

    rows: dict[tuple[Key, str, str], list[Statistic]]
    """By key, model and dataset; ascending by layer."""

    def of(self, key: Key, model: str, dataset: str) -> list[Statistic]:
        """The rows of one line; none if this was not measured."""
        return self.rows.get((key, model, dataset), [])


def collect(
    rows: Iterable[Statistic],
    keys: Collection[Key],
    models: Sequence[str],
    datasets: Sequence[str],
    site: str,
    position: str,
) -> Numbers:
    """Keep the rows that `keys` ask for. Streams: the table may be far larger than what is drawn."""
    wanted, shown = frozenset(keys), frozenset((model, dataset) for model in models for dataset in datasets)
    found: defaultdict[tuple[Key, str, str], dict[int, Statistic]] = defaultdict(dict)
    places: set[str] = set()
    for row in rows:
        places.add(f"{row.site} {row.position}")
        if (row.site, row.position) != (site, position) or (row.model, row.dataset) not in shown:
            continue
        key = _key(row)
        if key not in wanted:
            continue
        layers = found[key, row.model, row.dataset]
        if row.layer in layers:
            raise ValueError(f"two rows of {row.model}, {row.dataset}, layer {row.layer} for {key}")
        layers[row.layer] = row
    if not found:
        raise _nothing(f"{site} {position}", places)
    return Numbers({line: [layers[layer] for layer in sorted(layers)] for line, layers in found.items()})


def _nothing(place: str, places: set[str]) -> AnchorscopeError:
    if not places:
        hint = "The table is empty: run the stage `pathways` first."
    elif place in places:
        hint = "The table has numbers for it, but of other models or datasets, or of other conditions than charts show."
    else:
        hint = did_you_mean(place, places)
    return AnchorscopeError(f"nothing to draw for site and position '{place}'", hint)


def _key(row: Statistic) -> Key:
    return Key(row.statistic, row.condition, row.split, row.anchor, row.correction, row.group, row.stratum)


def too_few(line: Sequence[Statistic]) -> bool:
    """Whether this was measured, but no layer had enough samples."""
    return bool(line) and all(row.value is None for row in line)


def to_csv(rows: Iterable[Any], record: type[Any] = Statistic) -> bytes:
    """The rows of a table as CSV, each number in full; what is too few is empty."""
    columns = [field.name for field in fields(record)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if (value := getattr(row, name)) is None else value for name in columns])
    return text.getvalue().encode()
