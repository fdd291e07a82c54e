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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from anchorscope.evidence.claim import Claim, ClaimMeasure, Measure
from anchorscope.evidence.crossed import ADDS, LOGPROB_C, LOST, C, CrossedReadouts, Quadruples, W, crossed_series
from anchorscope.evidence.ledger import weighed
from anchorscope.evidence.pooled import LIKE_THESE, THESE, pooled
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
from helpers.widened import auroc_widening

check = Check(__doc__)

SETTINGS = {
    f"{n}x{width}{' clusters' * clustered}": (n, width, clustered)
    for clustered in (False, True)
    for n, width in ((500, 200), (500, 1000), (1500, 200), (1500, 1000))
}
STRENGTH = 0.003
RESAMPLES = 1000  # of pooled rows, as in a run: fewer make a percentile interval too narrow
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
CROSSED = {
    Key(W): "W of crossed answers",
    Key(LOST, "knockout-permuted"): "W lost beyond the null",
    Key(LOST, "knockout_answer-permuted_answer"): "W lost, cut for the answer",
    Key(C): "share of C above 0",
    Key(LOGPROB_C): "share of C above 0, log-probability",
    Key(ADDS): "the probe adds",
}


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


def coverage(title: str, draw: Callable[[int], dict[str, list[float]]], options: Options) -> Figures:
    """The share of data sets, drawn by their seeds, whose intervals hold the mean over all of them."""
    start, sets = time.perf_counter(), options.sets
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
    print(f"{title}: {sets} data sets, {time.perf_counter() - start:.0f} s")
    for name, row in table.items():
        both = "   ".join(f"{k} {row[k][0]:5} % [{row[k][1]}, {row[k][2]}]" for k in ("bootstrap", "interval"))
        print(f"  {name:34} {row['mean']:9} ± {row['spread']:7}   {both}   widened {row['widened']}", flush=True)
    return table


@check.step()
def settings(options: Options, work: Path) -> Figures:
    """Coverage in every setting: number of samples times number of features, with or without clusters."""
    tables = {}
    for name_of_setting, setting in SETTINGS.items():
        if options.only and name_of_setting not in options.only:
            continue
        draw = partial(one, *setting, options.repeats, options.resamples)
        tables[name_of_setting] = coverage(name_of_setting, draw, options)
    return tables


class CrossedDraw:
    """Pairs of questions with both answers: states of question, answer and, in some directions, of the fit."""

    def __init__(self, pairs: int, width: int, strength: float, rng: np.random.Generator) -> None:
        rows = [(2 * p + q, 2 * p + a) for p in range(pairs) for q in range(2) for a in range(2)]
        question, answer = np.array(rows).T
        self.labels: Any = question == answer
        self.clusters = question // 2
        self.quadruples = Quadruples.of(
            [f"q{i}" for i in question], [f"a{i}" for i in answer], self.labels.astype(bool).tolist()
        )
        sign = np.where(self.labels, 1.0, -1.0)[:, None]
        known = strength * rng.gamma(1.0, 1.0, size=pairs)[self.clusters][:, None]  # some pairs are known, many are not
        shared_part = sum(rng.normal(size=(2 * pairs, width))[index] for index in (question, answer))
        scale = 3 / np.sqrt(1 + np.arange(width) / 10)

        def states(strength: float) -> Any:
            x = (0.6 * shared_part + 0.6 * rng.normal(size=shared_part.shape)) * scale
            x[:, :TELLING] += strength * known * sign
            return x.astype(np.float32)

        self.passes = {"clean": states(0.35), "knockout": states(0.0), "knockout_answer": states(0.2)}
        self.logprob = (0.8 * known * sign)[:, 0] + rng.normal(size=len(sign)) + 2 * rng.normal(size=2 * pairs)[answer]


def one_crossed(
    pairs: int, width: int, strength: float, repeats: int, resamples: int, seed: int
) -> dict[str, list[float]]:
    """The numbers of crossed answers in one data set, as `one` gives those of a chart."""
    with threadpool_limits(1):
        world = CrossedDraw(pairs, width, strength, np.random.default_rng([seed, pairs, width, 2]))
        labels, clusters = world.labels, world.clusters
        folds = make_folds(labels, clusters, repeats, 5, seed)
        probes = fit_layer(world.passes["clean"], labels, clusters, folds, STRENGTH, seed=seed)
        states = (world.passes["clean"], world.passes["knockout"])
        widened = auroc_widening(states, labels, clusters, folds, probes, STRENGTH, seed)
        logits: dict[str, Any] = {name: read_out(probes, x, folds)[:, 0, :, None] for name, x in world.passes.items()}
        crossed = CrossedReadouts(world.quadruples, clusters, labels, world.logprob[:, None], logits)
        drawn = resample(clusters, repeats, resamples, seed)
        every = crossed_series(crossed, drawn, seed, widened)
        return {CROSSED[each.key]: _number(each.replicates, each.widened) for each in every if each.key in CROSSED}


@check.step()
def crossed(options: Options, work: Path) -> Figures:
    """Coverage of the numbers of crossed answers: 120 and 250 pairs of questions, and states that know nothing."""
    tables = {}
    for pairs, width, strength in ((120, 200, 1.0), (250, 200, 1.0), (250, 600, 1.0), (250, 200, 0.0)):
        title = f"{pairs} pairs x {width}{'' if strength else ', nothing known'}"
        draw = partial(one_crossed, pairs, width, strength, options.repeats, options.resamples)
        tables[title] = coverage(title, draw, options)
    return tables


@check.step()
def pooled_rows(options: Options, work: Path) -> Figures:
    """Coverage of a claim's two rows over all models and sets: two models on two to four sets that differ, or do not.

    Each question has a number in either model (such as W). Half of its variance is common to both models, and a fifth
    of the questions is asked of one model only. The truth of `these sets` is the mean of the sets that were drawn, and
    that of `sets like these` is the mean of all sets there could be.
    """
    claim = Claim("c", "", "", "", 0.05, "above", Measure((), lambda lines: None))
    out: Figures = {}
    every = np.arange(150)
    weights = [
        resample(every, 1, RESAMPLES, 0, [f"{place}/{question}" for question in every]).samples for place in range(4)
    ]
    for sets, apart in ((sets, apart) for sets in (2, 3, 4) for apart in (0.0, 0.03, 0.1)):
        inside = {THESE: 0, LIKE_THESE: 0}
        width: dict[str, list[float]] = {THESE: [], LIKE_THESE: []}
        draws = 5 * options.sets
        for seed in range(draws):
            rng = np.random.default_rng([seed, sets, round(100 * apart)])
            truths = 0.1 + apart * rng.normal(size=sets)
            measured: dict[str, dict[str, ClaimMeasure | None]] = {"one": {}, "two": {}}
            for place, (truth, size) in enumerate(zip(truths, rng.integers(50, 150, size=sets), strict=True)):
                common = rng.normal(size=size)
                for model in measured:
                    values = truth + 0.3 * (common + rng.normal(size=size)) / np.sqrt(2)
                    there = np.flatnonzero(rng.random(size) < 0.9)
                    drawn = weights[place][:, there]  # as `resample` draws them for some of the names
                    mean = drawn @ values[there] / drawn.sum(axis=1)
                    measured[model][str(place)] = ClaimMeasure([mean], len(there))
            for name, row in pooled(measured).items():
                low, high = (weighed(claim, "", name, row).numbers or (0, 0, 0))[1:]
                inside[name] += bool(low <= (float(truths.mean()) if name == THESE else 0.1) <= high)
                width[name].append(high - low)
        title = f"{sets} sets, {apart:g} apart"
        found = {name: share(count, draws) for name, count in inside.items()}
        out[title] = {name: {**found[name], "width": round(float(np.mean(width[name])), 3)} for name in found}
        print(f"{title:24} {out[title]}", flush=True)
    return out


check.option("--sets", "Draw this many data sets per setting", 200)
check.option("--repeats", "Fit this many repeats of the folds", 3)
check.option("--resamples", "Draw this many resamples", 400)
check.option("--first", "Start at this seed", 0)
check.option("--jobs", "Use this many processes", 2)
check.option("--only", f"Run these settings instead of all ({', '.join(SETTINGS)})", nargs="*", metavar="SETTING")

if __name__ == "__main__":
    check()
