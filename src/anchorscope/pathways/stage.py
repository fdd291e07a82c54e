"""From read-outs to the `pathways` table of every cell."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TypeVar

from threadpoolctl import threadpool_limits

from anchorscope.pathways.baselines import baselines, masses, refits
from anchorscope.pathways.intervals import resample
from anchorscope.pathways.record import PATHWAYS, Key, Origin, Statistic
from anchorscope.pathways.statistics import Part, Series, by_kind, check, parts, rows_of
from anchorscope.pathways.widening import Family, widenings
from anchorscope.probes.record import LEFT_OUT, READOUTS
from anchorscope.probes.recorded import Recorded, read_left_out, read_readouts
from anchorscope.progress import Advance
from anchorscope.store import Job, Store, Whole
from anchorscope.store.stage import Context
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import MASS

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


def pathways_stage(store: Store, model: str, dataset: str, point: ReadPoint) -> Whole[Statistic]:
    """The `pathways` table of one model, dataset and read point."""
    cell, resamples, seed = store.results(model, dataset), store.study.probes.resamples, store.study.seed

    def compute(advance: Advance) -> list[Statistic]:
        origin, recorded = Origin(model, dataset, point), read_readouts(store, model, dataset, point)
        check(recorded.readouts)
        widened = widenings(recorded.readouts, read_left_out(store, model, dataset, point), recorded.refit)

        def rows(some: Iterable[Series]) -> list[Statistic]:
            return rows_of(some, origin, lambda key: widened.get(Family.of(key), 1.0))

        return [row for part in every_part(recorded, resamples, seed, rows) for row in part]

    inputs = {
        "readouts": cell.origin(READOUTS.at(point)),
        "left_out": cell.origin(LEFT_OUT.at(point)),
        "mass": cell.origin(MASS) if store.study.traces.attention_samples else None,
        "resamples": resamples,
        "seed": seed,
    }
    return Whole(
        f"{model}, {dataset}: pathways at {point.site}, {point.position}", cell, PATHWAYS.at(point), inputs, compute
    )


def every_series(recorded: Recorded, resamples: int, seed: int) -> Iterator[Series]:
    """Every number of one cell, in the same resamples, so that every two of them can be compared."""
    for part in every_part(recorded, resamples, seed, list):
        yield from part


def every_part(
    recorded: Recorded, resamples: int, seed: int, made_of: Callable[[Iterable[Series]], list[T]]
) -> Iterator[list[T]]:
    """What is made of every number of one cell, part by part in order; parts are computed side by side."""
    readouts = recorded.readouts
    drawn = resample(readouts.clusters, readouts.repeats, resamples, seed)
    effects: dict[str, Series] = {}

    def compute(part: Part) -> tuple[list[T], dict[str, Series]]:
        series = list(part())
        mine = {one.key.condition: one for one in series if one.key == Key("delta_auroc", one.key.condition)}
        return made_of(series), mine

    further = (
        partial(by_kind, readouts, drawn, [row.kind for row in recorded.rows]),
        partial(baselines, recorded, drawn),
        partial(refits, recorded, drawn),
    )
    with threadpool_limits(1):  # a part has one thread, however many there are: the same bytes
        every: Iterator[Part] = chain(parts(readouts, drawn, seed), further)
        for of_part, mine in side_by_side(compute, every):
            effects |= mine
            yield of_part
        yield made_of(masses(recorded, drawn, effects))


def side_by_side(work: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """What the work makes of each item, in order: as many at a time as there are cores, and few ahead."""
    threads = cores()
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[B]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def cores() -> int:
    """As many threads as this process may have: those it was given, or all cores."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get("OMP_NUM_THREADS", "")
    return min(there, int(given)) if given.isdigit() and int(given) > 0 else there


def pathways_of(context: Context, job: Job) -> Whole[Statistic]:
    """The stage that a job asks for."""
    return pathways_stage(context.store, job.model, job.dataset, job.read_point)
