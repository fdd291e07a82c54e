"""Are the numbers that a page computes right? A slice measured in the browser against the same slice in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from anchorscope.pathways.record import PATHWAYS, Key
from anchorscope.probes.recorded import read_readouts
from anchorscope.report.page.chart_data import datasets_of, points_of, shown_of
from anchorscope.store import Store
from anchorscope.traces.record import TRACES
from helpers.browser import Browser

Q = Key("delta_p", "knockout", "layer", group="Q")


def numbers(browser: Browser, store: Store) -> dict[str, Any]:
    """Compare every cell, at the middle layer. The page must be open.

    AUROC of the clean and of the cut pass against scikit-learn's on mean read-outs, ΔP of Q and A against sums over
    samples, and how many are in Q against the table itself.
    """
    point, worst, compared = points_of([store])[0], 0.0, 0
    same = True
    for m, one in enumerate(shown_of([store])):
        for s, dataset in enumerate(datasets_of([store])):
            cell = store.results(one.model, dataset)
            if cell.entry(PATHWAYS.at(point)) is None:
                continue
            read = read_readouts(store, one.model, dataset, point).readouts
            layer = round((read.layers - 1) / 2)
            p = {
                name: expit(read.logits[i, :, 0, :, layer].astype(float)).mean(axis=0)
                for i, name in enumerate(read.conditions)
            }
            flipped = (read.logits[1, :, 0, :, layer] > 0) != (read.logits[0, :, 0, :, layer] > 0)
            q, right = flipped.mean(axis=0) >= 0.5, read.labels.astype(bool)
            probability = np.array([row.probability for row in cell.table(TRACES)])
            said = _measured(browser, m, s, layer)
            area = [roc_auc_score(right, p[name]) for name in ("clean", "knockout")]
            shift = 100 * np.where(p["clean"] >= 0.5, 1, -1) * (p["knockout"] - p["clean"])
            expected = {
                "auroc": area[0], "cut": area[1], "lost": area[1] - area[0],
                "deltaQ": shift[q].mean() if q.sum() >= 30 else None,
                "deltaA": shift[~q].mean() if (~q).sum() >= 30 else None,
                "accuracy": 100 * (right / probability).sum() / (1 / probability).sum(),
            }  # fmt: skip
            for name, value in expected.items():
                there = said[name]["value"]
                same = same and (value is None) == (there is None)
                if value is not None and there is not None:
                    worst = max(worst, abs(value - there) / (1 if name in ("auroc", "cut", "lost") else 100))
                    same = same and said[name]["low"] <= there <= said[name]["high"]
                    compared += 1
            table = [row.n for row in cell.table(PATHWAYS.at(point)) if row.key == Q and row.layer == layer]
            same = same and said["q"] == table[0] and said["n"] == len(right)
    return {"compared": compared, "largest_difference": worst, "ok": same and compared > 0 and worst < 1e-3}


def _measured(browser: Browser, model: int, dataset: int, layer: int) -> dict[str, Any]:
    state = f"{{model: {model}, set: {dataset}, layer: {layer}, split: 'layer', correction: 'none'}}"
    browser.run(f"anchorscope.showSamples({state})")
    found: list[dict[str, Any]] = browser.run("anchorscope.measuredSlice()")
    (one,) = found
    return one
