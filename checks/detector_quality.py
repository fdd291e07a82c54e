"""How well do detectors rank wrong answers, also with shuffled labels, on other sets and with few labels?

    python checks/detector_quality.py --run RUN

Steps: `table` compares the detectors of a run with the best simple one and with what the question alone tells;
`null` gives AUROC with shuffled labels; `transfer` fits on one set, or on three, and tests on another; `labels` fits on
fewer and fewer labels. RUN is a run that `anchorscope detect eval` has compared.
By default `table`, which takes minutes; the others fit detectors again, which takes hours.

`new_articles` asks whether a detector is useful: it promises at most 10 % errors among passed answers on a share of the
articles (--known), and counts what came of it on the others. `answers_needed` says how many held-out answers would find
that promise. RUN is then a run with passages of several articles, such as results/context/useful.yaml, and --articles a
JSONL file with the `id` and the `subject` of each question. With --likeliest, each question has one answer, the
likeliest of those given, which is the model's own choice among them.
`crossed_passages` writes the file of that study: two questions about one passage of SQuAD, each with its own answer and
with the other's, so that half of the answers are right and all of them stand in the passage.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from anchorscope.detectors.catalogue import ScorerFitter, catalogue
from anchorscope.detectors.compare import MEAN, compared, lookup
from anchorscope.detectors.crossfit import FOLDS, Labelled, cross_scored, folds_for, pooled, shuffled
from anchorscope.detectors.fit import kept_for_promise
from anchorscope.detectors.inputs import Floats
from anchorscope.detectors.scored import measured, scored_cells
from anchorscope.detectors.tables import read_labelled
from anchorscope.detectors.thresholds import Promise, choose_threshold
from anchorscope.detectors.training import area
from anchorscope.pathways.intervals import estimate, mean_auroc, resample
from anchorscope.probes.folds import Folds, IntArray
from anchorscope.probes.logistic import BoolArray
from anchorscope.questions.row import group_key
from anchorscope.store import Store
from helpers.steps import Check, Figures, Options
from helpers.tables import cells_of, write_rows

check = Check(__doc__)

CARRIED = ("confidence", "question_only", "single_layer", "joint", "combined")
USEFUL = ("question_only", "confidence", "single_layer", "single_layer_confidence", "joint")
AT_MOST = Promise("errors_passed", 0.1)
HELD_OUT = (100, 200, 400, 800, 1600)
LABELS = (100, 200, 500, 1000, 1900)
RESAMPLES = 500


@check.step("run")
def table(options: Options, work: Path) -> Figures:
    """AUROC of every detector, its gain over the best simple one, and its gain over the question alone."""
    store = Store.open(options.run)
    cells = [
        measured(store, *cell) for cell in [cell for cell in scored_cells(store) if options.model in (None, cell[0])]
    ]
    rows = lookup(compared(cells))
    out: Figures = {"cells": len(cells)}
    for name in cells[0].auroc:
        if ("all", MEAN, name, "auroc") not in rows:
            continue
        ahead = [rows[c.model, c.dataset, name, "beyond_question"] for c in cells if name in c.auroc]
        each: dict[str, Any] = {}
        for what in ("auroc", "beyond_baselines", "beyond_question"):
            row = rows.get(("all", MEAN, name, what))
            each[what] = [round(v, 4) for v in (row.value, row.low, row.high)] if row else None
        each["cells beyond the question"] = sum(row.low > 0 for row in ahead)
        out[name] = each
        print(f"{name:22} {each}")
    return out


@check.step("run", by_default=False)
def null(options: Options, work: Path) -> Figures:
    """AUROC of every detector with shuffled labels: the mean over cells, with its interval."""
    store, by_name = Store.open(options.run), dict[str, list[float]]()
    for cell in [cell for cell in scored_cells(store) if options.model in (None, cell[0])]:
        samples = shuffled(read_labelled(store, *cell), store.study.seed)
        fitters = {n: e.fitter for n, e in catalogue().items() if samples.inputs.has(e.fitter.needs)}
        scores = cross_scored(samples, fitters, folds_for(samples, 2, FOLDS, store.study.seed), store.study.seed)
        for name, each in scores.items():
            by_name.setdefault(name, []).append(float(np.mean([area(row, samples.right) for row in each])))
    out = {}
    for name, values in by_name.items():
        spread = 2.36 * float(np.std(values, ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
        mean = float(np.mean(values))
        out[name] = {"auroc": round(mean, 4), "plus or minus": round(spread, 4), "holds": abs(mean - 0.5) <= spread}
        print(f"{name:22} {out[name]}")
    return out


def _sets(store: Store, model: str) -> dict[str, Labelled]:
    return {name: read_labelled(store, model, name) for _, name in cells_of(store, "traces", model)}


def _models(store: Store, only: str | None) -> list[str]:
    return list(dict.fromkeys(model for model, _ in cells_of(store, "traces", only)))


def _carried() -> dict[str, ScorerFitter]:
    return {name: catalogue()[name].fitter for name in CARRIED}


@check.step("run", by_default=False)
def transfer(options: Options, work: Path) -> Figures:
    """AUROC of detectors fitted on one set, or on the three others, and tested on another."""
    store, out = Store.open(options.run), Figures()
    for model in _models(store, options.model):
        out[model] = {name: {} for name in CARRIED}
        sets = _sets(store, model)
        for tested, samples in sets.items():
            drawn = resample(samples.clusters, 1, RESAMPLES, 0)
            sources = {name: each for name, each in sets.items() if name != tested}
            if len(sources) > 1:
                sources["others"] = pooled(list(sources.values()))
            for fitted, source in sources.items():
                training = source.training(np.arange(len(source.right)), 0)
                for name, fitter in _carried().items():
                    scores = fitter.fit(training).logits(samples.inputs)
                    areas = mean_auroc(samples.right, scores[None, :, None], drawn)[:, 0]
                    out[model][name][f"{fitted} > {tested}"] = [round(float(end), 3) for end in estimate(areas)]
        for name, by_pair in out[model].items():
            print(f"{model:14} {name:14} { {pair: numbers[0] for pair, numbers in by_pair.items()} }")
    return out


@check.step("run", by_default=False)
def labels(options: Options, work: Path) -> Figures:
    """AUROC within sets by the number of labels, all sets pooled: mean and spread over four folds."""
    store, out = Store.open(options.run), Figures()
    for model in _models(store, options.model):
        sets = _sets(store, model)
        samples = pooled(list(sets.values()))
        kinds = np.array([name for name, each in sets.items() for _ in each.right])
        out[model] = {}
        for name, by_size in learning(samples, _carried(), folds_for(samples, 1, 4), kinds).items():
            out[model][name] = {
                size: [round(float(np.mean(areas)), 3), round(float(np.std(areas, ddof=1)), 3)]
                for size, areas in by_size.items()
                if areas
            }
            print(f"{model:14} {name:14} {out[model][name]}")
    return out


def learning(
    samples: Labelled, fitters: Mapping[str, ScorerFitter], folds: Folds, kinds: np.ndarray
) -> dict[str, dict[int, list[float]]]:
    """By detector and number of labels: AUROC of each test fold, fitted on so many of its training samples."""
    out: dict[str, dict[int, list[float]]] = {name: {size: [] for size in LABELS} for name in fitters}
    for fold in range(folds.count):
        test = np.flatnonzero(folds.fold[0] == fold)
        train = np.flatnonzero(folds.training(0, fold, 0))
        order = np.random.default_rng([0, fold, 19]).permutation(train)
        for size in LABELS:
            if size > len(train):
                continue
            training = samples.training(np.sort(order[:size]), 0)
            for name, fitter in fitters.items():
                logits = fitter.fit(training).logits(samples.inputs.of(test))
                out[name][size].append(_within(logits, samples.right[test], kinds[test]))
    return out


def _within(logits: Floats, right: np.ndarray, kinds: np.ndarray) -> float:
    """The mean of AUROC within each set: to know which set an answer is of earns nothing."""
    return float(np.nanmean([area(logits[kinds == kind], right[kinds == kind]) for kind in np.unique(kinds)]))


@check.step("run", by_default=False)
def new_articles(options: Options, work: Path) -> Figures:
    """What detectors promise on some articles, and the errors among what passes on the others.

    The first split is told in full. The others count in how many splits the promise was found and kept.
    """
    rows = []
    for cell, samples, article in _by_article(options):
        for name in USEFUL:
            splits = [_one_split(samples, article, name, options.known, seed) for seed in range(options.splits)]
            rows.append({"model": cell[0], "detector": name} | splits[0] | _over(splits))
            print(rows[-1], flush=True)
    write_rows(options.useful, rows)
    return {"rows": rows}


@check.step("run", by_default=False)
def answers_needed(options: Options, work: Path) -> Figures:
    """How many held-out answers would find the same promise, if they were drawn from the answers of the run.

    Each answer is scored by a detector that was fitted on other articles.
    """
    rows = []
    for cell, samples, article in _by_article(options):
        fold = np.random.default_rng([0, 43]).permutation(article.max() + 1)[article] % FOLDS
        for name in USEFUL:
            scores = np.empty(len(fold))
            for tested in (fold == number for number in range(FOLDS)):
                fitted = catalogue()[name].fitter.fit(samples.training(np.flatnonzero(~tested)))
                scores[tested] = -fitted.logits(samples.inputs.of(np.flatnonzero(tested)))
            for held_out in HELD_OUT:
                drawn = [_promised(scores, samples.right, held_out, seed) for seed in range(100)]
                found = [one for one in drawn if one is not None]
                passed, errors = np.mean(found, axis=0) if found else (None, None)
                broken = sum(one[1] > AT_MOST.at_most for one in found)
                rows.append({"model": cell[0], "detector": name, "held_out": held_out, "draws": len(drawn),
                             "found": len(found), "broken": broken, "passed": passed, "errors": errors})  # fmt: skip
                print(rows[-1], flush=True)
    write_rows(options.useful, rows)
    return {"rows": rows}


def _promised(scores: Floats, right: BoolArray, held_out: int, seed: int) -> tuple[float, float] | None:
    """The share that passes and the share of errors in it, by a threshold from so many answers; None without one."""
    rows = np.random.default_rng([seed, 47]).integers(len(right), size=held_out)
    threshold = choose_threshold(AT_MOST, scores[rows], right[rows], np.arange(held_out), float(np.mean(~right)), seed)
    if threshold.value is None:
        return None
    passed = scores <= threshold.value
    return float(passed.mean()), float((passed & ~right).sum() / max(1, passed.sum()))


def _by_article(options: Options) -> Iterator[tuple[tuple[str, str], Labelled, IntArray]]:
    """Each model's answers with the number of their article; those that the model itself would choose, if asked for."""
    with options.articles.open(encoding="utf-8") as lines:
        article = {row["id"]: row["subject"] for row in map(json.loads, lines)}
    store = Store.open(options.run)
    for cell in cells_of(store, "traces", options.model):
        samples = read_labelled(store, *cell)
        if options.likeliest:
            samples = samples.of(_likeliest(samples.inputs.questions, samples.inputs.number("logprob_sum")))
        yield cell, samples, np.unique([article[name] for name in samples.inputs.ids], return_inverse=True)[1]


@check.step(by_default=False)
def crossed_passages(options: Options, work: Path) -> Figures:
    """Write pairs of questions about one passage, with both answers, from a file of questions with passages."""
    by_passage: dict[str, list[dict[str, Any]]] = {}
    with options.squad.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            by_passage.setdefault(row["context"], []).append(row)
    order = sorted(by_passage, key=lambda text: hashlib.blake2b(text.encode()).digest())
    rows: list[dict[str, Any]] = []
    for passage in order:
        found = next((pair for pair in combinations(by_passage[passage], 2) if _apart(*pair)), None)
        if found is not None and len(rows) < 4 * options.pairs:
            for asked, given in product(found, repeat=2):
                rows.append({"id": f"{asked['id']}-{given['id']}", "question": asked["question"], "context": passage,
                             "answers": asked["answers"], "given": given["answers"][0], "label": asked is given,
                             "subject": asked["subject"]})  # fmt: skip
    options.crossed.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"pairs": len(rows) // 4, "articles": len({row["subject"] for row in rows})}


def _apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether no accepted answer of one question shares a word with an accepted answer of the other, or a question."""
    words = [{word for text in row["answers"] for word in group_key(text).split()} for row in (one, other)]
    asked = {word for row in (one, other) for word in group_key(row["question"]).split()}
    return not words[0] & words[1] and not (words[0] | words[1]) & asked


def _likeliest(questions: Sequence[str], logprobs: Floats) -> IntArray:
    """The row of each question whose answer is the likeliest."""
    order = sorted(range(len(questions)), key=lambda row: logprobs[row])
    return np.array(sorted({questions[row]: row for row in order}.values()))


def _over(splits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """In how many splits a promise was found and kept, and what passed then, on the mean."""
    found = [split for split in splits if split["found"]]
    return {
        "splits": len(splits),
        "splits_found": len(found),
        "splits_kept": sum(split["errors"] <= AT_MOST.at_most for split in found),
        "mean_passed": float(np.mean([split["passed"] for split in found])) if found else None,
        "mean_errors": float(np.mean([split["errors"] for split in found])) if found else None,
        "mean_hindsight": float(np.mean([split["hindsight"] for split in splits])),
        "mean_shuffled": float(np.mean([split["shuffled"] for split in splits])),
    }


def _one_split(samples: Labelled, article: IntArray, name: str, share: float, seed: int) -> dict[str, Any]:
    """One detector, fitted and promised on a share of the articles and counted on the others."""
    count = article.max() + 1
    first = np.random.default_rng([seed, 41]).permutation(count) < int(share * count)
    known, new = (samples.of(np.flatnonzero(part[article])) for part in (first, ~first))
    held_out = kept_for_promise(known, seed)
    fitted = catalogue()[name].fitter.fit(known.training(np.flatnonzero(~held_out), seed))
    rest = known.of(np.flatnonzero(held_out))
    threshold = choose_threshold(AT_MOST, -fitted.logits(rest.inputs), rest.right, rest.clusters, known.base_rate, seed)
    logits = fitted.logits(new.inputs)
    drawn = resample(article[~first[article]], 1, RESAMPLES, seed)
    auroc = estimate(mean_auroc(new.right, logits[None, :, None], drawn)[:, 0])
    by_chance = np.random.default_rng([seed, 53]).permutation(logits)
    row: dict[str, Any] = {"base_rate": known.base_rate, "auroc": auroc.value, "auroc_low": auroc.low,
                           "auroc_high": auroc.high, "found": threshold.value is not None,
                           "bound": threshold.bound, "hindsight": _could_pass(logits, new.right),
                           "shuffled": _could_pass(by_chance, new.right)}  # fmt: skip
    if threshold.value is None:
        return row | dict.fromkeys(("passed", "errors", "errors_low", "errors_high"))
    passed = -logits <= threshold.value
    counts = drawn.samples @ np.stack([passed, passed & ~new.right], axis=1)
    errors = estimate(counts[:, 1] / np.maximum(1, counts[:, 0]))
    return row | {"passed": float(passed.mean()), "errors": errors.value, "errors_low": max(0.0, errors.low),
                  "errors_high": errors.high}  # fmt: skip


def _could_pass(logits: Floats, right: BoolArray) -> float:
    """The largest share of answers that could pass as promised, by a threshold that is chosen on these themselves."""
    wrong = np.cumsum(~right[np.argsort(-logits)])
    enough = np.flatnonzero(wrong <= AT_MOST.at_most * np.arange(1, len(right) + 1))
    return float((enough[-1] + 1) / len(right)) if len(enough) else 0.0


check.option("--articles", "Read the article of each question from this file", None, type=Path)
check.option("--squad", "Read questions with passages from this file", Path("squad.jsonl"), type=Path)
check.option("--crossed", "Write pairs of them to this file", Path("squad-crossed.jsonl"), type=Path)
check.option("--pairs", "Write this many pairs at most", 500)
check.option("--likeliest", "Keep the likeliest answer of each question alone", action="store_true")
check.option("--known", "Fit and promise on this share of the articles", 0.8)
check.option("--splits", "Divide the articles this many times", 20)
check.option("--useful", "Write the table to this file", Path("useful.csv"), type=Path)
check.option("--model", "Look at the model NAME of the run instead of all models", metavar="NAME")

if __name__ == "__main__":
    check()
