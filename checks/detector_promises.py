"""Do a detector's promises and its intervals hold, in made-up worlds whose truth is known?

    python checks/detector_promises.py

Steps: `promises` fits a detector where clusters of unequal size are scored differently, chooses its threshold on
held-out samples at one base rate, moves it to two others, and computes whether the promise is kept for new answers, 200
times; `independent` does so for independent answers, at one base rate; `coverage` counts how often 95 % intervals of
AUROC, and of the difference of two detectors, hold the truth, which is the mean over all worlds, with samples by
themselves and in clusters of unequal size (helpers/clusters.py). `bootstrap` is the interval without widening,
`interval` the one that tables show.
"""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

from anchorscope.detectors.catalogue import CONFIDENCE, catalogue
from anchorscope.detectors.crossfit import Labelled, cross_scored, folds_for
from anchorscope.detectors.inputs import Inputs, States
from anchorscope.detectors.score_widening import widening_of
from anchorscope.detectors.thresholds import Promise, choose_threshold, rates
from anchorscope.pathways.intervals import estimate, mean_auroc, resample
from anchorscope.study.terms import StateName
from helpers.clusters import shared, unequal
from helpers.promise_worlds import PromiseCount, clustered_world, counted, fitted_on, passed, promised, shares_of_large
from helpers.steps import Check, Figures, Options

check = Check(__doc__)

CLEAN = StateName("clean", "mlp", "answer_last")
DELTA = 0.1  # probability with which a promise may be broken
BASE_RATES = (0.1, 0.3, 0.5)


def world(size: int, rng: np.random.Generator, rate: float, layers: int = 3, width: int = 12) -> Labelled:
    """Samples whose answers are wrong with probability `rate`; one direction of each layer tells which."""
    right = rng.random(size) > rate
    sign = np.where(right, 1.0, -1.0)
    directions = np.linspace(0.3, 0.7, layers)[:, None, None] * np.ones(width) / np.sqrt(width)
    states = rng.normal(size=(layers, size, width)) + sign[None, :, None] * directions
    inputs = Inputs(
        [str(i) for i in range(size)], [""] * size, [""] * size, {},
        {CLEAN: States.held(states.astype(np.float32))},
    )  # fmt: skip
    return Labelled(inputs, right, np.arange(size), np.ones(size))


@check.step()
def promises(options: Options, work: Path) -> Figures:
    """How often promises are given and kept at three base rates, with clusters of 1 to 12 answers."""
    out: Figures = {}
    errors, alarms = Promise("errors_passed", 0.05, DELTA), Promise("false_alarms", 0.05, DELTA)
    for rate in BASE_RATES:
        large, off = shares_of_large(rate), 0.0
        # false alarms do not depend on the base rate, so there is nothing to move
        counts = {which: PromiseCount() for which in [*((errors, moved) for moved in BASE_RATES), (alarms, rate)]}
        for seed in range(options.promises):
            detector = fitted_on(clustered_world(2_000, np.random.default_rng([3, seed]), rate), rate, seed)
            promising = {promise: promised(detector, promise) for promise in (errors, alarms)}
            for (promise, moved), count in counts.items():
                count.add(promise, promising[promise], moved, large)
        # what passes is computed; here it is counted for once
        test = clustered_world(50_000, np.random.default_rng(99), rate)
        limit = promising[alarms].score_threshold or 0.0
        for draw, shares in counted(test, detector.logits(test.inputs) > limit).items():
            computed = passed(detector, limit, large[draw])
            off = max(off, abs(shares[0] - computed[0]), abs(shares[1] - computed[1]) * (draw != "false_alarms"))
        out[f"computed against counted at {rate}"] = round(off, 4)
        for (promise, moved), count in counts.items():
            title = f"{promise.kind}, promised at {rate}" + (f", moved to {moved}" if moved != rate else "")
            out[title] = count.figures(options.promises)
            print(f"{title:45} {out[title]}", flush=True)
    return out


@check.judge
def judge(figures: Figures) -> None:
    """Stop when a promise is broken more often than it may be, by more than chance (1 in 100)."""
    for title, row in figures.get("promises", {}).items():
        if isinstance(row, dict):
            most = DELTA * row["repeats"] + 2.33 * math.sqrt(row["repeats"] * DELTA * (1 - DELTA))
            assert row["broken"] <= most, f"{title}: broken {row['broken']} times of {row['repeats']}"


@check.step()
def independent(options: Options, work: Path) -> Figures:
    """How often four promises are given and kept where answers are independent."""
    out, repeats = {}, options.promises
    fitter = catalogue()["stack"].fitter
    for title, promise, rate, size in (
        ("1 % false alarms", Promise("false_alarms", 0.01, DELTA), 0.5, 1200),
        ("5 % false alarms", Promise("false_alarms", 0.05, DELTA), 0.7, 600),
        ("5 % errors among passed", Promise("errors_passed", 0.05, DELTA), 0.3, 1200),
        ("1 % false alarms, too few", Promise("false_alarms", 0.01, DELTA), 0.5, 300),
    ):
        kept, given, passed = 0, 0, []
        test = world(20_000, np.random.default_rng(99), rate)
        for seed in range(repeats):
            samples = world(size, np.random.default_rng(seed), rate)
            half = np.arange(size) % 2 == 0
            fitted = fitter.fit(samples.training(np.flatnonzero(half)))
            rest = samples.of(np.flatnonzero(~half))
            scores = -fitted.logits(rest.inputs)
            limit = choose_threshold(promise, scores, rest.right, rest.clusters, rate, seed)
            if limit.value is None:
                continue
            given += 1
            alarms, errors = rates(-fitted.logits(test.inputs), test.right, limit.value, rate)
            kept += (alarms if promise.kind == "false_alarms" else errors) <= promise.at_most
            passed.append(float((-fitted.logits(test.inputs) <= limit.value).mean()))
        broken = round(1 - kept / given, 3) if given else None
        share = round(float(np.mean(passed)), 3) if passed else None
        out[title] = {"repeats": repeats, "given": given, "kept": kept, "broken share": broken, "passed": share}
        print(f"{title:28} {out[title]}")
    return out


def compared_world(size: int, rng: np.random.Generator, clustered: bool, layers: int = 4, width: int = 60) -> Labelled:
    """Samples for several detectors; with clusters, those of one share a part of their states and of their labels."""
    clusters = unequal(size, rng) if clustered else np.arange(size)
    easy = shared(clusters, 1, rng)[:, 0] if clustered else 0.0
    right = rng.random(size) < expit(easy)
    sign = np.where(right, 1.0, -1.0)
    states = {}
    for position, strength in (("answer_last", 0.5), ("answer_mean", 0.5), ("prompt_last", 0.3)):
        effect = shared(clusters, width, rng) if clustered else 0.0
        own = rng.normal(size=(layers, size, width))
        noise = np.sqrt(0.7) * own + np.sqrt(0.3) * effect if clustered else own
        depth = np.linspace(0.5, 1.0, layers)[:, None, None]
        telling = strength * sign[None, :, None] * depth * np.ones(width) / np.sqrt(width)
        states[StateName("clean", "mlp", position)] = States.held((noise + telling).astype(np.float32))
    numbers = {name: 0.2 * sign + rng.normal(size=size) for name in CONFIDENCE}
    names = [str(i) for i in range(size)]
    return Labelled(Inputs(names, [""] * size, [""] * size, numbers, states), right, clusters, np.ones(size))


COMPARED = ("single_layer", "question_only", "combined", "stack")
DIFFERENCES = (("combined", "single_layer"), ("stack", "single_layer"), ("combined", "question_only"))


def intervals(clustered: bool, seed: int) -> dict[str, list[float]]:
    """Of one world: value, bootstrap interval, widened interval and factor of each number."""
    with threadpool_limits(1):
        samples = compared_world(400, np.random.default_rng([7, seed, clustered]), clustered)
        fitters = {name: catalogue()[name].fitter for name in COMPARED}
        scores = cross_scored(samples, fitters, folds_for(samples, 2, 5, seed), seed)
        widened = widening_of(samples, "mlp", seed)
    drawn = resample(samples.clusters, 2, 500, seed)
    areas = {name: mean_auroc(samples.right, scores[name][:, :, None], drawn)[:, 0] for name in COMPARED}
    numbers = {name: (values, widened.auroc) for name, values in areas.items()}
    numbers |= {f"{a} − {b}": (areas[a] - areas[b], widened.difference) for a, b in DIFFERENCES}
    return {name: [*estimate(values), *estimate(values, by)[1:], by] for name, (values, by) in numbers.items()}


@check.step()
def coverage(options: Options, work: Path) -> Figures:
    """How often 95 % intervals hold the truth, with 400 samples, by themselves and in clusters of unequal size."""
    out: Figures = {}
    for title, clustered in (("samples by themselves", False), ("clusters", True)):
        with ProcessPoolExecutor(options.jobs) as pool:
            worlds = list(pool.map(partial(intervals, clustered), range(options.worlds)))
        out[title] = {}
        print(title)
        for name in worlds[0]:
            value, low, high, wide_low, wide_high, factor = np.array([world[name] for world in worlds]).T
            truth, spread = value.mean(), value.std(ddof=1)
            out[title][name] = {
                "truth": round(float(truth), 4), "spread": round(float(spread), 4),
                "bootstrap": round(100 * float(((low <= truth) & (truth <= high)).mean()), 1),
                "interval": round(100 * float(((wide_low <= truth) & (truth <= wide_high)).mean()), 1),
                "widened": round(float(factor.mean()), 2),
                "half width by spread": round(float((wide_high - wide_low).mean() / 2 / spread), 2),
            }  # fmt: skip
            print(f"  {name:28} {out[title][name]}", flush=True)
    return out


check.option("--promises", "Test every promise this many times", 200)
check.option("--worlds", "Draw this many worlds for coverage", 100)
check.option("--jobs", "Use this many processes for coverage", 2)

if __name__ == "__main__":
    check()
