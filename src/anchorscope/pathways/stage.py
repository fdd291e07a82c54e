"""The sixth stage: from read-outs to the `pathways` table of every cell."""

from __future__ import annotations

from anchorscope.pathways.baselines import baselines
from anchorscope.pathways.record import PATHWAYS, Origin, Statistic
from anchorscope.pathways.statistics import pathways
from anchorscope.probes.record import READOUTS
from anchorscope.probes.recorded import read_readouts
from anchorscope.progress import Advance
from anchorscope.store import Store, Whole
from anchorscope.study.terms import ReadPoint


def pathways_stage(store: Store, model: str, dataset: str, point: ReadPoint) -> Whole[Statistic]:
    """The `pathways` table of one model, dataset and read point."""
    cell, resamples, seed = store.results(model, dataset), store.study.probes.resamples, store.study.seed

    def compute(advance: Advance) -> list[Statistic]:
        origin, recorded = Origin(model, dataset, point), read_readouts(store, model, dataset, point)
        rows = pathways(recorded.readouts, origin, resamples, seed)
        return rows + [row for one in baselines(recorded, resamples, seed) for row in one.rows(origin)]

    inputs = {"readouts": cell.origin(READOUTS.at(point)), "resamples": resamples, "seed": seed}
    return Whole(
        f"{model}, {dataset}: pathways at {point.site}, {point.position}", cell, PATHWAYS.at(point), inputs, compute
    )
