"""How often do nominal 95 % intervals hold the truth, where the truth is known?

    python checks/interval_coverage.py

Samples of two classes are drawn from a known population, with states before and after a knockout. Half of the samples
lose what tells the classes apart; all are shifted and blurred. Probes, read-outs, resamples and intervals are those of
a run, at one layer. The truth of a number is its mean over all data sets of a setting, which is what the same study
would find on average. `bootstrap` is the interval without widening; `interval` is the one that tables and charts show.
The intervals of detectors: checks/detector_promises.py coverage.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from anchorscope.pathways.intervals import centred, interval, resample
from anchorscope.pathways.record import Key
from anchorscope.pathways.statistics import Series, series
from anchorscope.pathways.widening import Family, widenings
from anchorscope.probes.fit import fit_layer
from anchorscope.probes.folds import make_folds
from anchorscope.probes.jackknife import jackknife_layer, make_groups
from anchorscope.probes.readouts import Readouts, read_out
from anchorscope.probes.recorded import LeftOut
from helpers.steps import Check, Figures, Options
from helpers.tables import share

check = Check(__doc__)

SETTINGS = ((500, 200), (500, 1000), (1500, 200), (1500, 1000))
STRENGTH = 0.003
TELLING = 20  # dimensions that tell the classes apart
KEYS = {
    "AUROC": Key("auroc", "clean"),
    "ΔAUROC": Key("delta_auroc", "knockout"),
    "ΔAUROC, knockout − permuted": Key("delta_auroc", "knockout-permuted"),
    "ΔP of Q, halves": Key("delta_p", "knockout", "layer_half", group="Q"),
    "ΔP of A, halves": Key("delta_p", "knockout", "layer_half", group="A"),
    "ΔP of Q − A, halves": Key("delta_p", "knockout", "layer_half", group="Q-A"),
    "ΔP of Q − A, knockout − permuted": Key("delta_p", "knockout-permuted", "layer_half", group="Q-A"),
}


def drawn(n: int, width: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Clean and knocked-out states (sample, width), and labels."""
    labels = rng.random(n) < 0.35
    clean = rng.normal(size=(n, width)) * 3 / np.sqrt(1 + np.arange(width) / 10)
    telling = np.where(labels, 0.45, -0.45)[:, None]
    clean[:, :TELLING] += telling
    other = clean + 0.5 * rng.normal(size=clean.shape)
    other[:, :TELLING] -= 0.25 + np.where(rng.random(n) < 0.5, 1, 0)[:, None] * telling
    return clean.astype(np.float32), other.astype(np.float32), labels


def one(n: int, width: int, repeats: int, resamples: int, seed: int) -> dict[str, list[float]]:
    """For each number of one data set: its value, both intervals, and the factor of widening."""
    with threadpool_limits(1):
        clean, other, labels = drawn(n, width, np.random.default_rng([seed, n, width]))
        clusters = np.arange(n)
        folds = make_folds(labels, clusters, repeats, 5, seed)
        probes = fit_layer(clean, labels, clusters, folds, STRENGTH, seed=seed)
        logits = np.stack([read_out(probes, each, folds)[..., None] for each in (clean, other)]).astype(np.float32)
        readouts = Readouts(
            labels, clusters, np.ones(n), ("clean", "knockout"), logits, np.zeros_like(logits), folds.fold
        )
        groups = make_groups(labels, clusters, seed)
        left = jackknife_layer([clean, other], labels, clusters, folds, STRENGTH, probes, groups)
        moved = np.ascontiguousarray(np.swapaxes(left, 0, 1)[..., None])  # (group, condition, repeat, part, sample, 1)
        wide = widenings(readouts, LeftOut(groups, [0], moved))
        found: dict[str, Series] = {}
        for each in series(readouts, resample(clusters, repeats, resamples, seed), seed):
            found.update({name: each for name, key in KEYS.items() if key == each.key})
            if len(found) == len(KEYS):
                break
    numbers = {}
    for name, each in found.items():
        widened = wide.get(Family.of(each.key), 1.0)
        ends = [float(end[0]) for w in (1.0, widened) for end in interval(centred(each.replicates, w))]
        numbers[name] = [float(each.replicates[0, 0]), *ends, widened]
    return numbers


def coverage(n: int, width: int, sets: int, repeats: int, resamples: int, first: int) -> Figures:
    """The share of data sets whose intervals hold the mean over all of them."""
    with ProcessPoolExecutor(2) as pool:
        made = list(pool.map(partial(one, n, width, repeats, resamples), range(first, first + sets)))
    table = {}
    for name in KEYS:
        value, low, high, wide_low, wide_high, widened = np.array([numbers[name] for numbers in made]).T
        truth = value.mean()
        row: dict[str, Any] = {"mean": round(float(truth), 4), "spread": round(float(value.std(ddof=1)), 4)}
        for kind, ends in (("bootstrap", (low, high)), ("interval", (wide_low, wide_high))):
            held = int(((ends[0] <= truth) & (truth <= ends[1])).sum())
            row[kind] = [share(held, sets)[each] for each in ("percent", "low", "high")]
        row["widened"] = round(float(widened.mean()), 2)
        table[name] = row
    return table


@check.step()
def settings(options: Options, work: Path) -> Figures:
    """Coverage in every setting: number of samples times number of features."""
    tables = {}
    for n, width in SETTINGS:
        if options.only and f"{n}x{width}" not in options.only:
            continue
        start = time.perf_counter()
        table = coverage(n, width, options.sets, options.repeats, options.resamples, options.first)
        print(f"n = {n}, width = {width}: {options.sets} data sets, {time.perf_counter() - start:.0f} s")
        for name, row in table.items():
            ends = "   ".join(f"{k} {row[k][0]:5} % [{row[k][1]}, {row[k][2]}]" for k in ("bootstrap", "interval"))
            print(f"  {name:34} {row['mean']:9} ± {row['spread']:7}   {ends}   widened {row['widened']}", flush=True)
        tables[f"{n}x{width}"] = table
    return tables


check.option("--sets", "Draw this many data sets per setting", 200)
check.option("--repeats", "Fit this many repeats of the folds", 3)
check.option("--resamples", "Draw this many resamples", 400)
check.option("--first", "Start at this seed", 0)
check.option("--only", "Run these settings instead of all four", nargs="*", metavar="NxWIDTH")

if __name__ == "__main__":
    check()
