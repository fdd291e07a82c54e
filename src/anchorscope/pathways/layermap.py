"""What the map shows: how much a cut around each layer takes away at every later layer, with intervals.

Who is Q-Anchored and who A-Anchored is decided by the knockout in all layers, at the anchor layer, by one half of the
probes; the effect of a cut is read by the other half (splits.py). ΔAUROC is of all samples and needs no groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from anchorscope.pathways.intervals import Auroc, FloatArray, interval, mean_auroc, resample
from anchorscope.pathways.record import MAPSTATS, MapStatistic
from anchorscope.pathways.shifts import WHOLE, Shift, resampled, shift_of
from anchorscope.pathways.splits import split
from anchorscope.probes.readouts import Readouts
from anchorscope.probes.record import CLEAN, MAPS, mapped
from anchorscope.probes.recorded import read_readouts
from anchorscope.progress import Advance
from anchorscope.store import Store, Whole
from anchorscope.store.table import as_arrays
from anchorscope.study.terms import MIN_GROUP, ReadPoint
from anchorscope.traces.record import TRACES

GROUPS = ("Q", "A")


@dataclass(frozen=True)
class Mapped:
    """The map's read-outs of one model, set, site and position."""

    clean: NDArray[np.float32]
    """(repeat, part, sample, layer)"""
    cuts: dict[tuple[str, int], tuple[int, NDArray[np.float32]]]
    """By condition and cut layer: the first layer read, and (repeat, part, sample, layer from there on)."""


def read_map(store: Store, model: str, dataset: str, point: ReadPoint) -> Mapped:
    """The map's read-outs, samples in the order they were traced."""
    cuts: dict[tuple[str, int], tuple[int, list[NDArray[np.float32]]]] = {}
    for batch in store.results(model, dataset).table(MAPS.at(point)).batches():
        columns = (batch.column(name).to_pylist() for name in ("condition", "cut", "first"))
        for condition, cut, first, logits in zip(*columns, as_arrays(batch.column("logits")), strict=True):
            cuts.setdefault((condition, cut), (first, []))[1].append(logits)
    cubes = {key: (first, np.stack(samples, axis=2)) for key, (first, samples) in cuts.items()}
    return Mapped(cubes.pop(("clean", CLEAN))[1], cubes)


def mapstats_stage(store: Store, model: str, dataset: str, point: ReadPoint) -> Whole[MapStatistic]:
    """The numbers of the map of one model, dataset and read point."""
    study, cell, spec = store.study, store.results(model, dataset), store.study.map
    assert spec is not None

    def compute(advance: Advance) -> list[MapStatistic]:
        members = mapped(list(cell.table(TRACES)), spec, study.seed)
        readouts = _of(read_readouts(store, model, dataset, point).readouts, members)
        blank = MapStatistic(
            model=model,
            dataset=dataset,
            site=point.site,
            position=point.position,
            condition="",
            group="all",
            cut=-1,
            layer=-1,
            statistic="",
            value=None,
            low=None,
            high=None,
            n=len(members),
        )
        cuts = read_map(store, model, dataset, point)
        return list(map_statistics(readouts, cuts, blank, study.probes.resamples, study.seed))

    inputs = {"map": cell.origin(MAPS.at(point)), "resamples": study.probes.resamples, "seed": study.seed}
    title = f"{model}, {dataset}: map at {point.site}, {point.position}"
    return Whole(title, cell, MAPSTATS.at(point), inputs, compute)


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
    readouts: Readouts, maps: Mapped, blank: MapStatistic, resamples: int, seed: int
) -> Iterator[MapStatistic]:
    """All rows of the table; `blank` has what they share. `readouts` are of the same samples, under the knockout."""
    # 1. who is Q and who A: by the knockout in all layers, at the anchor layer
    drawn = resample(readouts.clusters, readouts.repeats, resamples, seed)
    auroc = Auroc(readouts.labels, drawn.samples)
    base = resampled(readouts, drawn, auroc)
    flipped = shift_of(readouts, base, "knockout", "none").flipped
    anchor = replace(blank, statistic="anchor_layer", condition="clean")
    anchors = base.anchors["best"][:, None].astype(float)
    yield from _rows(anchor, anchors, np.array([len(readouts.labels)]), [-1])
    # 2. what each cut does to all, to Q and to A, in every layer from its first on
    clean_area = mean_auroc(base.labels, maps.clean[:, WHOLE], base.resamples, kernel=auroc)
    conditions = list(dict.fromkeys(condition for condition, _ in maps.cuts))
    for cut in sorted({cut for _, cut in maps.cuts}):
        curves: dict[tuple[str, str, str], tuple[FloatArray, FloatArray]] = {}
        for condition in conditions:
            first, logits = maps.cuts[condition, cut]
            before = maps.clean[..., first:]
            change = 100 * (expit(logits) - expit(before))
            groups = split(base, Shift(flipped, np.stack([change, logits - before])), "best", "crossed", ("all",))
            area = mean_auroc(base.labels, logits[:, WHOLE], base.resamples, kernel=auroc) - clean_area[:, first:]
            curves[condition, "all", "delta_auroc"] = area, np.full(area.shape[1], len(readouts.labels))
            for at, group in enumerate(GROUPS):
                size = np.broadcast_to(groups.size[0, at], (area.shape[1],))
                curves[condition, group, "delta_p"] = groups.mean[0, 0, at], size
        # 3. and how that differs from what its controls do
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
