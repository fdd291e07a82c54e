"""Can a hard question fool the claims, the detectors or the promises, in made-up worlds whose truth is known?

    python checks/truth_or_difficulty.py

Steps: `answers` counts the verdicts on claims within a question and on crossed answers in worlds where states know
something about an answer that is not its truth (helpers/answer_worlds.py). A claim with a *yes* in one of the ledger's
two columns may hold in at most 5 % of the draws of each world that the column is about, and `crossed_route` where the
truth comes by the cue. `claims` counts the verdicts on
every claim in all other worlds (ledger_verdicts.py), among them two in which states only know how hard a question is;
`flipped` does so where 5 % of the answers are graded wrongly; `logprob` does so where the probe reads mean
log-probability and nothing else; `detectors` counts how often a detector is ahead of log-probability within a question,
where states and log-probabilities only know how hard it is, and where states know the truth; `promises` and `coverage`
are those of detector_promises.py.
"""

from __future__ import annotations

import sys
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any, get_args

import numpy as np
from scipy.special import expit

import detector_promises
import ledger_verdicts
from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.compare import DIFFERENCES, compared, measure
from anchorscope.detectors.crossfit import Labelled, cross_scored, folds_for
from anchorscope.detectors.inputs import Inputs, States, confidence
from anchorscope.detectors.score_widening import widening_of
from anchorscope.detectors.several import SeveralScores, known_numbers
from anchorscope.evidence import crossed
from anchorscope.evidence.ledger import verdicts_of, weighed
from anchorscope.evidence.record import ClaimAnswer
from anchorscope.evidence.within import CLAIMS, SampledReadouts, within_series
from anchorscope.pathways.intervals import resample
from anchorscope.pathways.series import as_lines
from anchorscope.study.terms import StateName
from helpers.answer_worlds import ABOUT_DIFFICULTY, ABOUT_PRIOR, ABOUT_ROUTE, KINDS, AnswerKind, AnswerWorld
from helpers.steps import Check, Figures, Options

check = Check(__doc__)

LAYERS, WIDTH, QUESTIONS, ANSWERS = 3, 12, 150, 6
CROSSED = tuple(claim for claim in crossed.CLAIMS if claim.about == "cell")
NAMES = tuple(catalogue())
POSITIONS = ("prompt_last", "answer_last", "answer_mean")


def of_world(job: tuple[AnswerKind, int]) -> list[tuple[str, float, str]]:
    """The verdicts on one draw, each claim by itself: without correction, which is the strictest test of a tag."""
    world, said = AnswerWorld(*job), []
    for claims, series in ((CLAIMS, world.sampled), (CROSSED, world.crossed)):
        lines = as_lines(series())
        for claim in claims:
            verdict = verdicts_of([weighed(claim, "model", "set", claim.measure(lines))])[0]
            said.append((claim.name, float("nan") if verdict.value is None else verdict.value, verdict.verdict))
    return said


@check.step()
def answers(options: Options, work: Path) -> Figures:
    """Can the prior of an answer, its form or the grader fool a claim that is said to tell truth from it?"""
    tags = {claim.name: claim for claim in (*CLAIMS, *CROSSED)}
    out: Figures = {kind: {} for kind in KINDS}
    failed = []
    print(f"{'world':12} {'claim':16} {'mean':>8} {'holds':>6} {'is one':>6} {'not':>6} {'cannot':>6}")
    with get_context("spawn").Pool(options.jobs) as pool:
        for kind in KINDS:
            draws = pool.map(of_world, [(kind, seed) for seed in range(options.repeats)], chunksize=4)
            for place, (name, claim) in enumerate(tags.items()):
                counts = Counter(draw[place][2] for draw in draws)
                mean = float(np.mean([draw[place][1] for draw in draws]))
                out[kind][name] = {"mean": round(mean, 3), **counts}
                numbers = " ".join(f"{counts[answer]:6}" for answer in get_args(ClaimAnswer))
                print(f"{kind:12} {name:16} {mean:8.3f} {numbers}", flush=True)
                tagged = (
                    (kind in ABOUT_DIFFICULTY and claim.tells_truth_from_difficulty)
                    or (kind in ABOUT_PRIOR and claim.tells_truth_from_prior)
                    or (kind in ABOUT_ROUTE and name == "crossed_route")
                )
                if tagged and counts["holds"] > 0.05 * len(draws):
                    failed.append(f"{name} in {kind}")
    return {"draws": options.repeats, "worlds": out, "not reached": failed}


@check.step()
def claims(options: Options, work: Path) -> Figures:
    """Verdicts on every claim in every world."""
    return dict(ledger_verdicts.verdicts(options, work))


@check.step()
def flipped(options: Options, work: Path) -> Figures:
    """Verdicts on every claim where 5 % of the answers are graded wrongly."""
    return dict(ledger_verdicts.flipped(options, work))


@check.step()
def logprob(options: Options, work: Path) -> Figures:
    """Verdicts on `within_adds` where the read-out is mean log-probability and noise, and where it knows more."""
    claim = next(claim for claim in CLAIMS if claim.name == "within_adds")
    out: Figures = {}
    for title, own in (("mean log-probability and noise", 0.0), ("the truth as well", 1.0)):
        counts: Counter[str] = Counter()
        for seed in range(options.repeats):
            rng = np.random.default_rng([seed, 5])
            question = np.repeat(np.arange(2 * QUESTIONS), ANSWERS)
            correct = np.tile(np.arange(ANSWERS) < ANSWERS // 2, 2 * QUESTIONS)
            sign, size = np.where(correct, 1.0, -1.0), len(question)
            tokens = rng.integers(1, 9, size=size).astype(float)
            mean = 0.8 * sign + rng.normal(size=size)
            read = mean + own * sign + 0.5 * rng.normal(size=size)
            logits = np.broadcast_to(read[None, None, :, None], (1, 1, size, 1))
            least = mean - rng.random(size) * np.log(1 + tokens)
            answers = SampledReadouts(
                question, question, correct, mean * tokens, least, mean * tokens, mean * tokens, tokens, tokens,
                np.arange(size), ["clean"], logits,
            )  # fmt: skip
            lines = as_lines(within_series(answers, resample(np.arange(2 * QUESTIONS), 1, 200, seed), seed))
            counts[verdicts_of([weighed(claim, "model", "set", claim.measure(lines))])[0].verdict] += 1
        out[title] = dict(counts)
        print(f"{title:32} {out[title]}")
    return out


def answers_of(rng: np.random.Generator, ease: Any, sign: Any, truth: float) -> tuple[Any, list[list[float]]]:
    """(position, layer, answer, width): noisy looks at a question's ease and, by `truth`, at whether it is right."""
    states = rng.normal(size=(len(POSITIONS), LAYERS, len(ease), WIDTH))
    states[..., 0] += 1.5 * ease
    states[1:, ..., 1] += truth * sign
    tokens = rng.integers(1, 7, size=len(ease))
    logprobs = [[float(v) for v in 0.5 * e - 2 + rng.normal(size=n)] for e, n in zip(ease, tokens, strict=True)]
    return states.astype(np.float32), logprobs


def inputs_of(ids: list[str], states: Any, logprobs: list[list[float]]) -> Inputs:
    """As detectors see them."""
    named = {StateName("clean", "mlp", name): States.held(states[place]) for place, name in enumerate(POSITIONS)}
    return Inputs(ids, [""] * len(ids), [""] * len(ids), confidence(logprobs), named)


def one(job: tuple[int, int, float]) -> dict[tuple[str, str], tuple[float, float, float]]:
    """By detector and difference: how far it is ahead, with its interval and its p-value."""
    seed, samples, truth = job
    rng = np.random.default_rng([seed, 11])
    ease = rng.normal(size=samples)
    right = rng.random(samples) < expit(2.5 * ease)
    ids = [str(i) for i in range(samples)]
    cell = Labelled(
        inputs_of(ids, *answers_of(rng, ease, np.where(right, 1.0, -1.0), truth)),
        right,
        np.arange(samples),
        np.ones(samples),
    )
    question = np.repeat(np.arange(QUESTIONS), ANSWERS)
    good = np.tile(np.arange(ANSWERS) < ANSWERS // 2, QUESTIONS)
    states, logprobs = answers_of(rng, ease[question], np.where(good, 1.0, -1.0), truth)
    again = inputs_of([ids[i] for i in question], states, logprobs)
    entries = {name: entry for name, entry in catalogue().items() if name in NAMES}
    fitters = {name: entry.fitter for name, entry in entries.items()}
    scores = cross_scored(cell, fitters, folds_for(cell, 1, 5, seed), seed, again=(again, question))
    greedy = {name: values[:, :samples] for name, values in scores.items()}
    further = {name: values[:, samples:] for name, values in scores.items()}
    several = SeveralScores(question, cell.clusters[question], good, known_numbers(logprobs), further)
    widened = widening_of(cell, "mlp", seed)
    measured = measure("model", "set", cell, greedy, entries, (), 100, seed, several, widened)
    return {
        (row.detector, row.measure): (row.value, row.low, row.p)
        for row in compared([measured])
        if row.measure in DIFFERENCES
    }


@check.step()
def detectors(options: Options, work: Path) -> Figures:
    """How often a detector is found ahead of the question, of baselines, and of log-probability in a question."""
    out: Figures = {}
    for title, truth in (("difficulty only", 0.0), ("states know the truth", 0.7)):
        jobs = [(seed, options.samples, truth) for seed in range(options.repeats)]
        with get_context("spawn").Pool(options.jobs) as pool:
            draws = pool.map(one, jobs, chunksize=4)
        table: Figures = {}
        for name in NAMES:
            for what in DIFFERENCES:
                if (name, what) not in draws[0]:
                    continue
                value, _, p = np.array([draw[name, what] for draw in draws]).T
                ahead = int(((value > 0) & (p < 0.05)).sum())
                table.setdefault(name, {})[what] = {"mean": round(float(value.mean()), 3), "ahead": ahead}
        any_ahead = {
            what: sum(
                any(d[name, what][0] > 0 and d[name, what][2] < 0.05 for name in NAMES if (name, what) in d)
                for d in draws
            )
            for what in DIFFERENCES
        }
        out[title] = {"draws": len(draws), "any detector ahead": any_ahead, "detectors": table}
        print(f"{title}: any detector ahead in {any_ahead} of {len(draws)} draws", file=sys.stderr)
        for name, row in table.items():
            print(f"{title:24} {name:24} {row}")
    return out


@check.step()
def promises(options: Options, work: Path) -> Figures:
    """How often promises are given and kept."""
    return dict(detector_promises.promises(options, work))


@check.step()
def coverage(options: Options, work: Path) -> Figures:
    """How often 95 % intervals of detectors hold the truth."""
    return dict(detector_promises.coverage(options, work))


for other in (ledger_verdicts.check, detector_promises.check):
    check.options.update(other.options)

if __name__ == "__main__":
    check()
