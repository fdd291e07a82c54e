"""What the map shows: how much a cut around each layer takes away at every later layer, with intervals.

Who is Q-Anchored and who A-Anchored is decided by the knockout in all layers, at the anchor layer, by one half of the
probes; the effect of a cut is read by the other half (splits.py). ΔAUROC is of all samples and needs no groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from anchorscope.activations import TABLE as TRACES
from anchorscope.activations import Trace
from anchorscope.bootstrap import Auroc, FloatArray, interval, resample
from anchorscope.conditions import Position
from anchorscope.layermap import CLEAN, MapReadout, map_name, mapped
from anchorscope.models.sites import Site
from anchorscope.pathways import MIN_GROUP, mean_auroc
from anchorscope.probes import PARTS
from anchorscope.probing import as_arrays, read_readouts
from anchorscope.progress import Progress, silent
from anchorscope.readouts import Readouts
from anchorscope.splits import Shift, make_cell, shift_of, sigmoid, split
from anchorscope.store import Store
from anchorscope.table import Plan

GROUPS = ("Q", "A")


@dataclass(frozen=True, slots=True)
class MapStatistic:
    """One row of a `mapstats` table: one number with its 95 % bootstrap interval."""

    model: str = field(metadata={"doc": "the model"})
    dataset: str = field(metadata={"doc": "the question set"})
    site: str = field(metadata={"doc": "where the activation was read: attn, mlp or resid"})
    position: str = field(metadata={"doc": "which token was read: answer_last, final or prompt_last"})
    condition: str = field(metadata={"doc": "what was cut, or the first minus the second of two, joined by '-'"})
    group: str = field(metadata={"doc": "all, Q or A: labelled by the knockout in all layers, at the anchor layer"})
    cut: int = field(metadata={"doc": "the layer the cut is centred on; -1 where the number belongs to none"})
    layer: int = field(metadata={"doc": "the layer read; -1 where the number belongs to none"})
    statistic: str = field(metadata={"doc": "delta_auroc (0..1), delta_p (percentage points), anchor_layer"})
    value: float | None = field(metadata={"doc": "the number; null where a group is too small"})
    low: float | None = field(metadata={"doc": "lower end of the 95 % percentile bootstrap interval"})
    high: float | None = field(metadata={"doc": "upper end of the 95 % percentile bootstrap interval"})
    n: int = field(metadata={"doc": "samples behind the number, mean over draws"})


@dataclass(frozen=True)
class Mapped:
    """The map's read-outs of one model, set, site and position."""

    clean: NDArray[np.float32]  # (repeat, part, sample, layer)
    cuts: dict[tuple[str, int], tuple[int, NDArray[np.float32]]]
    """By condition and cut layer: the first layer read, and (repeat, part, sample, layer from there on)."""


def mapstats_name(site: Site, position: Position) -> str:
    """The folder of the map's numbers at a site and position."""
    return f"mapstats-{site}-{position}"


def read_map(store: Store, model: str, dataset: str, site: Site, position: Position) -> Mapped:
    """The map's read-outs, samples in the order they were traced."""
    repeats = store.study.probes.repeats
    found: dict[tuple[str, int], tuple[int, list[NDArray[np.float32]]]] = {}
    for batch in store.results(model, dataset).table(map_name(site, position), MapReadout).batches():
        columns = (batch.column(name).to_pylist() for name in ("condition", "cut", "first"))
        for condition, cut, first, flat in zip(*columns, as_arrays(batch.column("logits")), strict=True):
            found.setdefault((condition, cut), (first, []))[1].append(flat.reshape(repeats, len(PARTS), -1))
    cubes = {key: (first, np.stack(samples, axis=2)) for key, (first, samples) in found.items()}
    return Mapped(cubes.pop(("clean", CLEAN))[1], cubes)


def write_mapstats(
    store: Store, model: str, dataset: str, site: Site, position: Position, progress: Progress = silent
) -> None:
    """Compute the numbers of the map of one model, dataset, site and position, unless that is done."""
    study, cell = store.study, store.results(model, dataset)
    inputs = {"map": cell.origin(map_name(site, position)), "resamples": study.probes.resamples, "seed": study.seed}
    if cell.finished(mapstats_name(site, position), MapStatistic, inputs) is not None:
        return
    assert study.map is not None
    with progress(f"{model}, {dataset}: map at {site}, {position}", None):
        rows = list(cell.table(TRACES, Trace))
        members = mapped(rows, study.map, study.seed)
        readouts = _of(read_readouts(store, model, dataset, site, position).readouts, members)
        found = read_map(store, model, dataset, site, position)
        blank = MapStatistic(model, dataset, site, position, "", "all", -1, -1, "", None, None, None, len(members))
        numbers = list(map_statistics(readouts, found, blank, study.probes.resamples, study.seed))
        plan = Plan(len(numbers), max(1, len(numbers)))
        cell.begin(mapstats_name(site, position), MapStatistic, plan, inputs, {}).write(0, numbers)


def _of(readouts: Readouts, members: NDArray[np.int64]) -> Readouts:
    """The read-outs of some samples."""
    return Readouts(
        readouts.labels[members],
        readouts.clusters[members],
        readouts.probability[members],
        readouts.conditions,
        readouts.logits[:, :, :, members],
        readouts.drift[:, :, :, members],
    )


def map_statistics(
    readouts: Readouts, found: Mapped, blank: MapStatistic, resamples: int, seed: int
) -> Iterator[MapStatistic]:
    """All rows of the table; `blank` has what they share. `readouts` are of the same samples, under the knockout."""
    drawn = resample(readouts.clusters, readouts.repeats, resamples, seed)
    auroc = Auroc(readouts.labels, drawn.samples)
    cell = make_cell(readouts, drawn, auroc)
    flipped = shift_of(readouts, cell, "knockout", "none").flipped
    anchor = replace(blank, statistic="anchor_layer", condition="clean")
    anchors = cell.anchors["best"][:, None].astype(float)
    yield from _rows(anchor, anchors, np.array([len(readouts.labels)]), [-1])
    clean_area = mean_auroc(cell, found.clean, auroc)
    conditions = list(dict.fromkeys(condition for condition, _ in found.cuts))
    for cut in sorted({cut for _, cut in found.cuts}):
        curves: dict[tuple[str, str, str], tuple[FloatArray, FloatArray]] = {}
        for condition in conditions:
            first, logits = found.cuts[condition, cut]
            before = found.clean[..., first:]
            change = 100 * (sigmoid(logits) - sigmoid(before))
            groups = split(cell, Shift(flipped, np.stack([change, logits - before])), "best", True, ("all",))
            area = mean_auroc(cell, logits, auroc) - clean_area[:, first:]
            curves[condition, "all", "delta_auroc"] = area, np.full(area.shape[1], len(readouts.labels))
            for at, group in enumerate(GROUPS):
                size = np.broadcast_to(groups.size[0, at], (area.shape[1],))
                curves[condition, group, "delta_p"] = groups.mean[0, 0, at], size
        for control in conditions[1:]:
            for (condition, group, statistic), (values, size) in list(curves.items()):
                if condition == conditions[0]:
                    other, fewer = curves[control, group, statistic]
                    key = (f"{condition}-{control}", group, statistic)
                    curves[key] = values - other, np.minimum(size, fewer)
        for (condition, group, statistic), (values, size) in curves.items():
            one = replace(blank, condition=condition, group=group, statistic=statistic, cut=cut)
            yield from _rows(one, values, size, range(first, first + values.shape[1]))


def _rows(
    one: MapStatistic, replicates: FloatArray, size: FloatArray | NDArray[np.int64], layers: list[int] | range
) -> Iterator[MapStatistic]:
    """A row for each layer, from (1 + resample, layer)."""
    low, high = interval(replicates[1:])
    for index, layer in enumerate(layers):
        enough = float(size[index]) >= MIN_GROUP
        numbers = [
            float(x) if enough and np.isfinite(x) else None for x in (replicates[0, index], low[index], high[index])
        ]
        yield replace(one, layer=layer, value=numbers[0], low=numbers[1], high=numbers[2], n=int(size[index]))


def read_mapstats(store: Store, site: Site, position: Position) -> Iterator[MapStatistic]:
    """The rows of every model and dataset of a run that has them."""
    for model in store.study.models:
        for dataset in store.study.datasets:
            cell = store.results(model.name, dataset.name)
            if cell.plan(mapstats_name(site, position)) is not None:
                yield from cell.table(mapstats_name(site, position), MapStatistic)
