"""Made-up numbers in the shape of the published figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from typing import Any

import numpy as np

from anchorscope.evidence import chart_figures
from anchorscope.pathways.record import NumberLine, Statistic

MODELS = {"Llama-3.2-1B": 16, "Llama-3.2-3B": 28}
SETS = ("popqa", "triviaqa", "hotpotqa", "nq")
CHARTS = {chart.name: chart for chart in chart_figures.CHARTS}
ANCHORED = {"split": "anchor_half", "anchor": "best"}
PLACEBOS = ("matched_question-control_question", "matched_random-control_random")


PLAIN = {
    **{"site": "mlp", "position": "answer_last", "condition": "knockout", "split": "none", "anchor": "none"},
    **{"correction": "none", "group": "all", "stratum": "all", "statistic": "delta_p"},
}


def number(**what: Any) -> Statistic:
    """A row of a chart; what is not said is plain."""
    nothing = dict.fromkeys(("value", "low", "high", "band_low", "band_high"))
    return Statistic(**{**PLAIN, "layer": 0, **nothing, "n": 0, **what})


def numbers(models: dict[str, int] = MODELS, datasets: Sequence[str] = SETS, seed: int = 0) -> Iterator[Statistic]:
    """All that charts draw, and some that none draws. The last set's A group is too few in the first model's
    predicted-wrong stratum, and the first set's Q group in the first two layers of `split: layer`."""
    rng = np.random.default_rng(seed)
    for model, layers in models.items():
        for place, dataset in enumerate(datasets):
            yield from _of_one(rng, model, dataset, layers, place, last=place == len(datasets) - 1)


def _of_one(
    rng: np.random.Generator, model: str, dataset: str, layers: int, place: int, last: bool
) -> Iterator[Statistic]:
    depth = np.linspace(0, 1, layers)
    trough = -(10 + (38 + layers * 0.6 - 5 * place) * np.exp(-(((depth - 0.6) / (0.25 + 0.2 * (depth > 0.6))) ** 2)))

    def line(curve: np.ndarray, width: float, noise: float, n: int, gap: range = range(0), **what: str):
        wobble = curve + rng.normal(0, noise, layers)
        for layer, value in enumerate(wobble.tolist()):
            few = layer in gap
            low, high = value - width * rng.uniform(0.8, 1.2), value + width * rng.uniform(0.8, 1.2)
            shown = {} if few else {"value": value, "low": low, "high": high}
            yield number(model=model, dataset=dataset, layer=layer, n=12 if few else n + layer, **shown, **what)

    flat = np.full(layers, -4.0 - place)
    rise = 0.55 + (0.27 - 0.03 * place) * np.sin(np.pi * depth**0.8 * 0.8)
    for where, q, a, n in (
        ({"split": "layer"}, trough, flat, 300),
        (ANCHORED, 0.7 * trough, flat, 260),
        ({**ANCHORED, "stratum": "predicted_correct"}, 0.6 * trough - 5, 0.3 * trough, 120),
        ({**ANCHORED, "stratum": "predicted_wrong"}, 0.2 * trough, flat * 0.3, 90),
        ({**ANCHORED, "correction": "drift"}, 0.4 * trough, flat * 0.2, 260),
    ):
        early = range(2) if place == 0 and where == {"split": "layer"} else range(0)
        few = last and layers == 16 and where.get("stratum") == "predicted_wrong"
        yield from line(q, 4, 2.5, n, early, group="Q", **where)
        yield from line(a, 2.5, 1.5, 2 * n, range(layers) if few else range(0), group="A", **where)
    for condition, scale in zip(PLACEBOS, (0.35, 0.45), strict=True):
        yield from line(scale * trough, 4, 2, 240, group="Q", condition=condition, **ANCHORED)
    yield from line(0.5 * trough, 2, 1, 900, condition="matched_question", split="layer_half")
    yield from line(0.12 * trough, 2, 1, 900, condition="control_question", split="layer_half")
    yield from line(rise, 0.02, 0.006, 900, statistic="auroc", condition="clean")
    yield from line(rise * 0.5 + 0.27, 0.02, 0.006, 900, statistic="auroc_question_only", condition="clean")
    yield from line(0.55 - rise, 0.02, 0.006, 900, statistic="delta_auroc")
    yield from line(1.1 * (0.55 - rise), 0.02, 0.006, 900, statistic="delta_auroc", condition="answer_only")
    yield from line(0.8 * (0.55 - rise), 0.02, 0.006, 900, statistic="delta_auroc", condition="matched_question")
    yield from line(0.15 * (0.55 - rise), 0.02, 0.006, 900, statistic="delta_auroc", condition="control_question")
    yield from line(0.6 * (0.55 - rise), 0.02, 0.006, 900, statistic="delta_auroc", condition="permuted")
    yield from line(0.4 * (0.55 - rise), 0.02, 0.006, 900, statistic="delta_auroc_refit")
    for condition, scale in (("knockout", 0.7), ("permuted", 0.6)):
        half = {"split": "anchor_half", "anchor": "half"}
        yield from line(scale * trough, 4, 2, 240, group="Q-A", condition=condition, **half)
    anchor = layers * 0.55 + (0, 0.3, 0.3, 1.2)[place % 4]
    what = {"statistic": "anchor_layer", "condition": "clean", "layer": -1, "n": 900}
    yield number(model=model, dataset=dataset, value=anchor, low=anchor - 1, high=anchor + 1, **ANCHORED, **what)
    yield from line(trough, 4, 2, 300, group="Q", split="layer", site="resid")  # of another site
    yield from line(trough, 4, 2, 300, group="Q-A", split="layer")  # of no chart


def number_lines(rows: Sequence[Statistic]) -> list[NumberLine]:
    """The lines of the `numbers` table that these rows are of."""
    lines = []
    for key in dict.fromkeys(row.key for row in rows):
        mine = [row for row in rows if row.key == key]
        numbers = {
            name: [nan if getattr(row, name) is None else getattr(row, name) for row in mine]
            for name in ("value", "low", "high", "band_low", "band_high", "n")
        }
        lines.append(NumberLine("x", **key._asdict(), by_layer=True, widened=1.0, replicates=[], **numbers))
    return lines
