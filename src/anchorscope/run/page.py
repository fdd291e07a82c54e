"""`anchorscope report`: gather what a page shows, and write it as one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.compare import Measured, compared
from anchorscope.detectors.record import SCORES
from anchorscope.detectors.scored import measured, read_scores
from anchorscope.progress import Progress, silent
from anchorscope.report.page import Detection, page
from anchorscope.store import Store
from anchorscope.store.files import write_text


def write_page(stores: Sequence[Store], path: Path, text: bool = True, progress: Progress = silent) -> Path:
    """Write the report of one run, or of two side by side."""
    with progress("measuring detectors", None):
        detection = detected(stores)
    with progress("writing the report", None):
        write_text(path, page(stores, detection, text))
    return path


def detected(stores: Sequence[Store]) -> Detection:
    """What the runs' detectors say, where `anchorscope detect eval` compared them."""
    scores, comparisons = {}, {}
    for run, store in enumerate(stores):
        cells: list[Measured] = []
        for model in store.study.models:
            for dataset in store.study.datasets:
                cell = store.results(model.name, dataset.name)
                if cell.entry(SCORES) is not None and cell.complete(SCORES):
                    scored = read_scores(store, model.name, dataset.name)
                    samples, by_name = scored
                    scores[run, model.name, dataset.name] = {
                        name: dict(zip(samples.inputs.ids, map(float, each.mean(axis=0)), strict=True))
                        for name, each in by_name.items()
                    }
                    cells.append(measured(store, model.name, dataset.name, scored))
        if cells:
            comparisons[run] = compared(cells)
    titles = {name: entry.title for name, entry in catalogue().items()}
    return Detection(scores, comparisons, titles)
