"""How often do nominal 95 % intervals hold the truth, where the truth is known?

    python checks/interval_coverage.py

Samples of two classes are drawn from a known population, with states before and after a knockout. Half of the samples
lose what tells the classes apart; all are shifted and blurred. Beside them stand states of the question alone, those of
the model and those of another one, which knows less. In settings with clusters, samples belong to clusters of unequal
size (helpers/clusters.py) that share a part of their states and of their chance to be right. Probes, read-outs,
resamples and intervals are those of a run, at one layer. The truth of a number is its mean over all data sets of a
setting, which is what the same study would find on average. `bootstrap` is the interval without widening; `interval` is
the one that tables and charts show. The intervals of detectors: checks/detector_promises.py coverage.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from anchorscope.evidence.transfer import knowing_series
from anchorscope.pathways.baselines import baselines
from anchorscope.pathways.effects import effects
from anchorscope.pathways.intervals import Resamples, centred, interval, resample
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series
from anchorscope.pathways.widening import Family, widenings
from anchorscope.probes.fit import fit_layer
from anchorscope.probes.folds import make_folds
from anchorscope.probes.jackknife import jackknife_layer, make_groups
from anchorscope.probes.readouts import Readouts, read_out
from anchorscope.probes.recorded import LeftOut, Recorded
from helpers.clusters import shared, unequal
from helpers.steps import Check, Figures, Options
from helpers.tables import share

check = Check(__doc__)

SETTINGS = {
    f"{n}x{width}{' clusters' * clustered}": (n, width, clustered)
    for clustered in (False, True)
    for n, width in ((500, 200), (500, 1000), (1500, 200), (1500, 1000))
}
STRENGTH = 0.003
TELLING = 20  # dimensions that tell the classes apart
KEYS = {
    "AUROC": Key("auroc", "clean"),
    "ΔAUROC": Key("delta_auroc", "knockout"),
    "ΔAUROC of the refit": Key("delta_auroc_refit", "knockout"),
    "ΔAUROC, knockout − permuted": Key("delta_auroc", "knockout-permuted"),
    "ΔP of Q, halves": Key("delta_p", "knockout", "layer_half", group="Q"),
    "ΔP of A, halves": Key("delta_p", "knockout", "layer_half", group="A"),
    "ΔP of Q − A, halves": Key("delta_p", "knockout", "layer_half", group="Q-A"),
    "ΔP of Q − A, knockout − permuted": Key("delta_p", "knockout-permuted", "layer_half", group="Q-A"),
}
AHEAD = "AUROC of the question, own − other's"


class Drawn:
    """One data set: labels, clusters, and states (sample, width)."""

    def __init__(self, n: int, width: int, clustered: bool, rng: np.random.Generator) -> None:
        self.clusters = unequal(n, rng) if clustered else np.arange(n)
        effect = shared(self.clusters, width, rng) if clustered else np.zeros((n, width))
        easy = shared(self.clusters, 1, rng)[:, 0] if clustered else 0.0
        self.labels: Any = rng.random(n) < 1 / (1 + np.exp(0.62 - easy))  # 35 % where all are alike
        sign = np.where(self.labels, 1.0, -1.0)[:, None]
        scale = 3 / np.sqrt(1 + np.arange(width) / 10)

        def states(strength: float) -> Any:
            noise = rng.normal(size=(n, width))
            noise = np.sqrt(0.7) * noise + np.sqrt(0.3) * effect if clustered else noise
            x = noise * scale
            x[:, :TELLING] += strength * sign
            return x

        clean = states(0.45)
        other = clean + 0.5 * rng.normal(size=clean.shape)
        other[:, :TELLING] -= 0.25 + np.where(rng.random(n) < 0.5, 1, 0)[:, None] * 0.45 * sign
        self.clean, self.other = clean.astype(np.float32), other.astype(np.float32)
        self.own, self.theirs = (states(strength).astype(np.float32) for strength in (0.35, 0.3))


def one(n: int, width: int, clustered: bool, repeats: int, resamples: int, seed: int) -> dict[str, list[float]]:
    """For each number of one data set: its value, both intervals, and the factor of widening."""
    with threadpool_limits(1):
        world = Drawn(n, width, clustered, np.random.default_rng([seed, n, width, clustered]))
        clean, other, labels, clusters = world.clean, world.other, world.labels, world.clusters
        folds = make_folds(labels, clusters, repeats, 5, seed)
        probes = fit_layer(clean, labels, clusters, folds, STRENGTH, seed=seed)
        logits = np.stack([read_out(probes, each, folds)[..., None] for each in (clean, other)]).astype(np.float32)
        readouts = Readouts(
            labels, clusters, np.ones(n), ("clean", "knockout"), logits, np.zeros_like(logits), folds.fold
        )
        groups = make_groups(labels, clusters, seed)
        left = jackknife_layer([clean, other], labels, clusters, folds, STRENGTH, probes, groups)
        moved = np.ascontiguousarray(np.swapaxes(left, 0, 1)[..., None])  # (group, condition, repeat, part, sample, 1)
        again = fit_layer(other, labels, clusters, folds, STRENGTH, seed=seed, parts=1)
        refit = {"knockout": read_out(again, other, folds)[:, 0, :, None].astype(np.float32)}
        refit_left = jackknife_layer([other], labels, clusters, folds, STRENGTH, again, groups)[0, :, :, 0, :, None]
        wide = widenings(readouts, LeftOut(groups, [0], moved, {"knockout": refit_left}), refit)
        resampled = resample(clusters, repeats, resamples, seed)
        numbers = dict(_ahead(world, resampled, repeats, seed))
        nothing = np.zeros((repeats, n), np.float32)
        recorded = Recorded([], readouts, nothing[..., None], nothing, refit, {}, {})
        numbers |= _numbers(baselines(recorded, resampled, KEYS.values()), wide)
        numbers |= _numbers((one for part in effects(readouts, resampled, KEYS.values(), seed) for one in part()), wide)
    return numbers


def _numbers(every: Iterable[Series], wide: dict[Family, float]) -> dict[str, list[float]]:
    """The numbers of these series, by what they are called here."""
    names = {key: name for name, key in KEYS.items()}
    return {names[each.key]: _number(each.replicates, wide.get(Family.of(each.key), 1.0)) for each in every}


def _number(replicates: Any, widened: float) -> list[float]:
    """The value, both intervals and the factor, from (1 + resample, 1)."""
    ends = [float(end[0]) for factor in (1.0, widened) for end in interval(centred(replicates, factor))]
    return [float(replicates[0, 0]), *ends, widened]


def _ahead(world: Drawn, resampled: Resamples, repeats: int, seed: int) -> Iterator[tuple[str, list[float]]]:
    """Question-only probes of two models, and what the first has ahead."""
    every = np.arange(len(world.labels))
    others = {"other": world.theirs}
    for one in knowing_series(world.labels, world.clusters, every, world.own, others, resampled, repeats, seed):
        yield AHEAD, _number(one.replicates, one.widened)


def coverage(setting: tuple[int, int, bool], options: Options) -> Figures:
    """The share of data sets whose intervals hold the mean over all of them."""
    sets, draw = options.sets, partial(one, *setting, options.repeats, options.resamples)
    with ProcessPoolExecutor(options.jobs) as pool:
        made = list(pool.map(draw, range(options.first, options.first + sets)))
    table = {}
    for name in made[0]:
        value, low, high, wide_low, wide_high, widened = np.array([numbers[name] for numbers in made]).T
        truth = value.mean()
        row: dict[str, Any] = {"mean": round(float(truth), 4), "spread": round(float(value.std(ddof=1)), 4)}
        for kind, ends in (("bootstrap", (low, high)), ("interval", (wide_low, wide_high))):
            held = int(((ends[0] <= truth) & (truth <= ends[1])).sum())
            row[kind] = [share(held, sets)[each] for each in ("percent", "low", "high")]
        row["widened"] = round(float(widened.mean()), 2)
        row["half width by spread"] = round(float((wide_high - wide_low).mean() / 2 / value.std(ddof=1)), 2)
        table[name] = row
    return table


@check.step()
def settings(options: Options, work: Path) -> Figures:
    """Coverage in every setting: number of samples times number of features, with or without clusters."""
    tables = {}
    for name_of_setting, setting in SETTINGS.items():
        if options.only and name_of_setting not in options.only:
            continue
        start = time.perf_counter()
        table = coverage(setting, options)
        print(f"{name_of_setting}: {options.sets} data sets, {time.perf_counter() - start:.0f} s")
        for name, row in table.items():
            ends = "   ".join(f"{k} {row[k][0]:5} % [{row[k][1]}, {row[k][2]}]" for k in ("bootstrap", "interval"))
            print(f"  {name:34} {row['mean']:9} ± {row['spread']:7}   {ends}   widened {row['widened']}", flush=True)
        tables[name_of_setting] = table
    return tables


check.option("--sets", "Draw this many data sets per setting", 200)
check.option("--repeats", "Fit this many repeats of the folds", 3)
check.option("--resamples", "Draw this many resamples", 400)
check.option("--first", "Start at this seed", 0)
check.option("--jobs", "Use this many processes", 2)
check.option("--only", f"Run these settings instead of all ({', '.join(SETTINGS)})", nargs="*", metavar="SETTING")

if __name__ == "__main__":
    check()
