"""The last stages of the chart: from read-outs to the `pathways` table of every cell, and from those to the figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.activations import TABLE as TRACES
from anchorscope.activations import Trace
from anchorscope.bootstrap import Auroc, FloatArray, average, interval, resample
from anchorscope.conditions import Position
from anchorscope.errors import StoreError
from anchorscope.figures import draw, draw_maps
from anchorscope.headline import Headline, headline
from anchorscope.mapstats import read_mapstats
from anchorscope.models.sites import Site
from anchorscope.pathways import Statistic, pathways
from anchorscope.probing import Recorded, read_readouts, table_name
from anchorscope.progress import Progress, silent
from anchorscope.store import Store
from anchorscope.table import Plan, Table


def pathways_name(site: Site, position: Position) -> str:
    """The folder of the `pathways` table of a site and position."""
    return f"pathways-{site}-{position}"


def write_pathways(
    store: Store, model: str, dataset: str, site: Site, position: Position, progress: Progress = silent
) -> Table[Statistic]:
    """Compute the `pathways` table of one model, dataset, site and position, unless that is done."""
    cell, resamples, seed = store.results(model, dataset), store.study.probes.resamples, store.study.seed
    inputs = {"readouts": cell.origin(table_name(site, position)), "resamples": resamples, "seed": seed}
    done = cell.finished(pathways_name(site, position), Statistic, inputs)
    if done is not None:
        return done
    with progress(f"{model}, {dataset}: pathways at {site}, {position}", None):
        recorded = read_readouts(store, model, dataset, site, position)
        rows = pathways(recorded.readouts, model, dataset, site, position, resamples, seed)
        for name, layers, values, low, high, n in _baselines(recorded, resamples, seed):
            for i, layer in enumerate(layers):
                where = (model, dataset, site, position, "clean", "none", "none", "none", "all", "all", layer, name)
                rows.append(Statistic(*where, _number(values[i]), _number(low[i]), _number(high[i]), n))
        table = cell.begin(pathways_name(site, position), Statistic, Plan(len(rows), max(1, len(rows))), inputs, {})
        table.write(0, rows)
    return table


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _baselines(
    recorded: Recorded, resamples: int, seed: int
) -> Iterator[tuple[str, list[int], FloatArray, FloatArray, FloatArray, int]]:
    """AUROC of the question-only probe, of the text-only classifier, and within relations: value, low, high."""
    readouts = recorded.readouts
    drawn = resample(readouts.clusters, readouts.repeats, resamples, seed)
    auroc = Auroc(readouts.labels, drawn.samples)
    layers, n = list(range(readouts.layers)), len(readouts.labels)
    # (repeat, 1 + resample, layer), then the mean over resampled repeats
    questions = average(np.stack([auroc(each) for each in recorded.question_only]), drawn.repeats.T[:, :, None])
    yield "auroc_question_only", layers, questions[0], *interval(questions[1:]), n
    texts = average(np.stack([auroc(each[:, None]) for each in recorded.text_only]), drawn.repeats.T[:, :, None])
    yield "auroc_text_only", [-1], texts[0], *interval(texts[1:]), n
    relations = np.array([row.relation or "" for row in recorded.rows])
    if len(set(relations)) > 1:
        for name, scores in (
            ("auroc_within_relation", readouts.logits[0, :, 0]),
            ("auroc_question_only_within_relation", recorded.question_only),
        ):
            within = _within(readouts.labels, scores, relations, drawn.samples, drawn.repeats)
            yield name, layers, within[0], *interval(within[1:]), n


def _within(
    labels: NDArray[np.bool_], scores: FloatArray, relations: NDArray[Any], weights: FloatArray, repeats: FloatArray
) -> FloatArray:
    """Within-relation AUROC in every resample: (1 + resample, layer). `scores` is (repeat, sample, layer)."""
    found = np.zeros((len(scores), len(weights), scores.shape[2]))
    pairs = np.zeros(len(weights))
    for relation in np.unique(relations):
        rows = relations == relation
        right, wrong = rows & labels, rows & ~labels
        if right.any() and wrong.any():
            count = weights[:, right].sum(axis=1, dtype=np.float64) * weights[:, wrong].sum(axis=1, dtype=np.float64)
            auroc = Auroc(labels[rows], weights[:, rows])
            for repeat in range(len(scores)):
                area = auroc(scores[repeat][rows])
                found[repeat] += np.where(count[:, None] > 0, area * count[:, None], 0)
            pairs += count
    found /= np.where(pairs > 0, pairs, np.nan)[None, :, None]
    return average(found, repeats.T[:, :, None])


def read_pathways(store: Store, site: Site, position: Position) -> Iterator[Statistic]:
    """The rows of every model and dataset of a run that has them."""
    found = False
    for model in store.study.models:
        for dataset in store.study.datasets:
            cell = store.results(model.name, dataset.name)
            if cell.plan(pathways_name(site, position)) is not None:
                found = True
                yield from cell.table(pathways_name(site, position), Statistic)
    if not found:
        raise StoreError(
            f"{store.root} has no pathways at {site}, {position} yet",
            "Run: anchorscope run STUDY; if that was done, no set had enough right answers: sample more.",
        )


def headlines(store: Store, site: Site, position: Position) -> Iterator[Headline]:
    """The first numbers of every model and dataset that has pathways."""
    for model in store.study.models:
        for dataset in store.study.datasets:
            cell = store.results(model.name, dataset.name)
            if cell.plan(pathways_name(site, position)) is not None:
                grades = [row.correct for row in cell.table(TRACES, Trace)]
                rows = cell.table(pathways_name(site, position), Statistic)
                yield headline(model.name, dataset.name, rows, len(grades), sum(grades))


def write_figures(store: Store, site: Site, position: Position, folder: Path | None = None) -> list[Path]:
    """Draw the charts of a run: PNG, SVG, PDF, the numbers as CSV, and a caption each."""
    study = store.study
    rows: Iterable[Statistic] = read_pathways(store, site, position)
    place = folder or store.root / "figures" / f"{site}-{position}"
    names = [m.name for m in study.models], [d.name for d in study.datasets]
    written = draw(rows, *names, place, site, position)
    if study.map is not None:
        windows = {"single": "in one layer", "window": f"in a window of {study.map.width} layers around one"}
        about = f"{windows[study.map.layers]}, for {'all later' if study.map.into == 'after' else 'the answer'} tokens"
        written += draw_maps(list(read_mapstats(store, site, position)), *names, place, site, position, about)
    return written
