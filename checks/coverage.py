"""How often nominal 95 % intervals hold the truth, where the truth is known: `python checks/coverage.py`. JSON last.

Samples of two classes are drawn from a known population, with states before and after a knockout: half of the samples
lose what tells the classes apart, all are shifted and blurred. Probes, read-outs, resamples and intervals are those of
a run, at one layer. The truth of a number is its mean over all data sets of the setting: what the same study would find
on average. `bootstrap` is the interval without widening, `interval` the one the tables have; a band over one layer is
the interval's symmetric twin.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from anchorscope.pathways.intervals import centred, interval, resample, wilson
from anchorscope.pathways.record import Key
from anchorscope.pathways.statistics import Series, series
from anchorscope.pathways.widening import Family, widenings
from anchorscope.probes.fit import fit_layer
from anchorscope.probes.folds import make_folds
from anchorscope.probes.jackknife import jackknife_layer, make_groups
from anchorscope.probes.readouts import Readouts, read_out
from anchorscope.probes.recorded import LeftOut

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
    """One data set: of each number its value, and both ends of the interval without and with widening."""
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


def coverage(n: int, width: int, sets: int, repeats: int, resamples: int, first: int) -> dict[str, Any]:
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
            row[kind] = [round(100 * held / sets, 1), *(round(100 * end, 1) for end in wilson(held, sets))]
        row["widened"] = round(float(widened.mean()), 2)
        table[name] = row
    return table


def main() -> None:
    """All settings, or some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200, help="data sets in each setting")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--resamples", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="seed of the first data set")
    parser.add_argument("--only", nargs="*", default=[], metavar="NxWIDTH")
    options = parser.parse_args()
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
    print(json.dumps(tables, ensure_ascii=False))


if __name__ == "__main__":
    main()
