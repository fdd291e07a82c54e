"""The seventh stage: from read-outs to the `pathways` table of every cell."""

from __future__ import annotations

from collections.abc import Iterator

from anchorscope.pathways.baselines import baselines, masses, refits
from anchorscope.pathways.intervals import resample
from anchorscope.pathways.record import PATHWAYS, Key, Origin, Statistic
from anchorscope.pathways.statistics import Series, by_kind, check, series
from anchorscope.pathways.widening import Family, widenings
from anchorscope.probes.record import LEFT_OUT, READOUTS
from anchorscope.probes.recorded import Recorded, read_left_out, read_readouts
from anchorscope.progress import Advance
from anchorscope.store import Store, Whole
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import MASS


def pathways_stage(store: Store, model: str, dataset: str, point: ReadPoint) -> Whole[Statistic]:
    """The `pathways` table of one model, dataset and read point."""
    cell, resamples, seed = store.results(model, dataset), store.study.probes.resamples, store.study.seed

    def compute(advance: Advance) -> list[Statistic]:
        origin, recorded = Origin(model, dataset, point), read_readouts(store, model, dataset, point)
        check(recorded.readouts)
        widened = widenings(recorded.readouts, read_left_out(store, model, dataset, point))
        every = every_series(recorded, resamples, seed)
        return [row for one in every for row in one.rows(origin, widened.get(Family.of(one.key), 1.0))]

    inputs = {
        "readouts": cell.origin(READOUTS.at(point)),
        "left_out": cell.origin(LEFT_OUT.at(point)),
        "mass": cell.origin(MASS) if store.study.traces.mass else None,
        "resamples": resamples,
        "seed": seed,
    }
    return Whole(
        f"{model}, {dataset}: pathways at {point.site}, {point.position}", cell, PATHWAYS.at(point), inputs, compute
    )


def every_series(recorded: Recorded, resamples: int, seed: int) -> Iterator[Series]:
    """Every number of one cell, in the same resamples, so that every two of them can be compared."""
    readouts = recorded.readouts
    drawn = resample(readouts.clusters, readouts.repeats, resamples, seed)
    effects: dict[str, Series] = {}
    for one in series(readouts, drawn, seed):
        if one.key == Key("delta_auroc", one.key.condition):
            effects[one.key.condition] = one
        yield one
    yield from by_kind(readouts, drawn, [row.kind for row in recorded.rows])
    yield from baselines(recorded, drawn)
    yield from refits(recorded, drawn)
    yield from masses(recorded, drawn, effects)
