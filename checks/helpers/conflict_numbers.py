"""What the log-probabilities of both names under both passages show (conflict_scores.py), each with its interval.

A name is *supported* by the passage that holds it. Each question gives four cases, two of them supported: both names
under both passages. Each name is once supported and once not, so what a name is by itself tells nothing. Intervals are
95 %, by resampling clusters of questions that share a name.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from anchorscope.pathways.intervals import Auroc, Resamples, estimate, resample, wilson
from anchorscope.probes.folds import make_folds
from anchorscope.traces.clusters import Keys, clusters_of
from helpers.conflict_scores import Scores

RESAMPLES = 2000
CASES = (("original", "memory", True), ("original", "substitute", False), ("replaced", "memory", False),
         ("replaced", "substitute", True))  # fmt: skip
AMBIGUOUS = 0.1, 0.9
Floats = NDArray[np.float64]


class Number(NamedTuple):
    """A row of the table."""

    model: str
    questions: str
    """Which questions: all, or a part of them."""
    measure: str
    value: float
    low: float
    high: float
    n: int
    """Number of questions."""


def clusters_by_name(rows: Sequence[Mapping[str, Any]]) -> NDArray[np.int64]:
    """Questions that share a name or most of their words are together, as in a run."""
    keys = [
        Keys(row["question"], None, row["memory_answers"][0].casefold(), row["answers"][0].casefold()) for row in rows
    ]
    return np.array(clusters_of(keys).numbers, dtype=np.int64)


class _Questions:
    """The scores of some questions, as arrays, and their resamples."""

    def __init__(self, model: str, called: str, scores: Sequence[Scores], clusters: NDArray[np.int64]) -> None:
        self.model, self.called, self.clusters = model, called, clusters
        names = [name for name in Scores.__dataclass_fields__ if name != "id"]
        self.of = {name: np.array([float(getattr(each, name)) for each in scores]) for name in names}
        self.drawn = resample(clusters, 1, RESAMPLES, 0)

    def __len__(self) -> int:
        return len(self.clusters)

    def number(self, measure: str, replicates: Floats, ends: tuple[float, float] = (-np.inf, np.inf)) -> Number:
        """From (1 + resample,)."""
        value, low, high = estimate(replicates)
        return Number(self.model, self.called, measure, value, max(low, ends[0]), min(high, ends[1]), len(self))

    def mean(self, measure: str, values: Floats) -> Number:
        """The mean over questions."""
        weights = self.drawn.samples.astype(np.float64)
        if (values == 1).all() or (values == 0).all():  # no resample differs, so the clusters are counted
            low, _ = wilson(count := len(np.unique(self.clusters)), count)
            low, high = (low, 1.0) if values[0] else (0.0, 1 - low)
            return Number(self.model, self.called, measure, float(values[0]), low, high, len(self))
        ends = (0.0, 1.0) if values.min() >= 0 and values.max() <= 1 else (-np.inf, np.inf)
        return self.number(measure, weights @ values / weights.sum(axis=1), ends)

    def correlation(self, measure: str, x: Floats, y: Floats) -> Number:
        """Pearson's r; `x` and `y` (question, case)."""
        return self.number(measure, weighted_correlation(x, y, self.drawn), (-1.0, 1.0))

    def case(self, passage: str, name: str, before: str = "") -> Floats:
        return self.of[f"{before}{passage}_{name}"]

    def cases(self, only: Sequence[str] = ("original", "replaced")) -> tuple[NDArray[np.bool_], dict[str, Floats]]:
        """(case × question): whether the passage supports the name, and what could tell."""
        chosen = [case for case in CASES if case[0] in only]
        with_passage = np.concatenate([self.case(passage, name) for passage, name, _ in chosen])
        closed = np.concatenate([self.case("closed", name) for _, name, _ in chosen])
        scores = {
            "log-probability with the passage": with_passage,
            "closed-book surprisal": -closed,
            "left out": with_passage - closed,
        }
        cut = np.concatenate([self.case(passage, name, "cut_") for passage, name, _ in chosen])
        if np.isfinite(cut).all():
            scores["cut"] = with_passage - cut
        return np.repeat([supported for _, _, supported in chosen], len(self)), scores


def weighted_correlation(x: Floats, y: Floats, drawn: Resamples) -> Floats:
    """(1 + resample,): r over all cases of the resampled questions; `x` and `y` are (question, case)."""
    weights = drawn.samples.astype(np.float64)

    def mean(values: Floats) -> Floats:
        found: Floats = weights @ values.mean(axis=1) / weights.sum(axis=1)
        return found

    covariance = mean(x * y) - mean(x) * mean(y)
    r: Floats = covariance / np.sqrt((mean(x * x) - mean(x) ** 2) * (mean(y * y) - mean(y) ** 2))
    return r


def all_numbers(model: str, scores: Sequence[Scores], rows: Mapping[str, Mapping[str, Any]]) -> list[Number]:
    """Every number of one model."""
    clusters = clusters_by_name([rows[each.id] for each in scores])

    def of(called: str, chosen: NDArray[np.bool_]) -> _Questions:
        some = [each for each, is_one in zip(scores, chosen, strict=True) if is_one]
        return _Questions(model, called, some, clusters[chosen])

    every = of("all", np.ones(len(scores), bool))
    numbers = [*_preferred(every), *_graded(every), *_separated(every)]
    for called, chosen in _by_memory(every).items():
        some = of(called, chosen)
        numbers += [*_preferred(some), *_areas(some, ("left out",), False)]
    some = of("cut", np.isfinite([each.cut_original_memory + each.cut_replaced_memory for each in scores]))
    numbers += [*_separated(some), *_cut_or_left_out(some)]
    return [*numbers, *_sentences(of("sentences cut", np.isfinite([each.part_cut for each in scores])))]


def _by_memory(every: _Questions) -> dict[str, NDArray[np.bool_]]:
    """Thirds of the questions by how likely each token of the remembered name is without a passage."""
    known = every.of["closed_memory"] / every.of["memory_tokens"]
    third = np.digitize(known, np.quantile(known, [1 / 3, 2 / 3]))
    named = ("memory weakest", "memory middle", "memory strongest")
    return {name: third == i for i, name in enumerate(named)}


def _preferred(some: _Questions) -> Iterator[Number]:
    """How often the passage's name is the likelier one, and the contrast in which each name's prior cancels."""
    original = some.case("original", "memory") - some.case("original", "substitute")
    replaced = some.case("replaced", "substitute") - some.case("replaced", "memory")
    closed = some.case("closed", "memory") - some.case("closed", "substitute")
    contrast = original + replaced
    for measure, values in (
        ("original: its name above the other", original > 0),
        ("replaced: its name above the other", replaced > 0),
        ("both: its name above the other", (original > 0) & (replaced > 0)),
        ("closed book: remembered above substitute", closed > 0),
        ("contrast above 0", contrast > 0),
        (
            "remembered name: likelier with its passage",
            some.case("original", "memory") > some.case("replaced", "memory"),
        ),
        (
            "substitute: likelier with its passage",
            some.case("replaced", "substitute") > some.case("original", "substitute"),
        ),
    ):
        yield some.mean(measure, values.astype(np.float64))
    yield some.mean("contrast, nats", contrast)
    added = some.case("original", "memory") - some.case("closed", "memory")
    yield some.mean("added to the remembered name by its passage, nats", added)


def _graded(some: _Questions) -> Iterator[Number]:
    """Probabilities instead of one greedy answer."""
    for passage in ("original", "replaced", "closed"):
        for name in ("memory", "substitute"):
            yield some.mean(f"p({name} | {passage})", np.exp(some.case(passage, name)))
    for passage, name, other in (("original", "memory", "substitute"), ("replaced", "substitute", "memory")):
        share = 1 / (1 + np.exp(some.case(passage, other) - some.case(passage, name)))
        ambiguous = (share > AMBIGUOUS[0]) & (share < AMBIGUOUS[1])
        yield some.mean(f"{passage}: share of its name among both", share)
        yield some.mean(f"{passage}: share between 0.1 and 0.9", ambiguous.astype(np.float64))


def _separated(some: _Questions) -> Iterator[Number]:
    """How well each score tells supported names from others, over both passages and under each, and what it adds."""
    yield from _areas(some, ("log-probability with the passage", "closed-book surprisal", "left out", "cut"), True)
    for passage in ("original", "replaced"):
        labels, scores = some.cases([passage])
        for name, values in scores.items():
            yield some.number(f"AUROC, {passage} only: {name}", _area(some, labels, values), (0.0, 1.0))


def _areas(some: _Questions, wanted: Sequence[str], differences: bool) -> Iterator[Number]:
    labels, scores = some.cases()
    length = np.concatenate([some.of[f"{name}_tokens"] for _, name, _ in CASES])
    areas = {name: _area(some, labels, scores[name]) for name in wanted if name in scores}
    if differences:
        cheap = [scores["log-probability with the passage"], scores["closed-book surprisal"], length]
        areas["fitted"] = _area(some, labels, _fitted(some, labels, cheap))
        if "cut" in scores:
            areas["fitted with the cut"] = _area(some, labels, _fitted(some, labels, [*cheap, scores["cut"]]))
    for name, area in areas.items():
        yield some.number(f"AUROC: {name}", area, (0.0, 1.0))
    if differences:
        for one, other in (
            ("left out", "log-probability with the passage"), ("fitted", "left out"), ("cut", "left out"),
            ("fitted with the cut", "fitted"),
        ):  # fmt: skip
            if one in areas:
                yield some.number(f"AUROC: {one} minus {other}", areas[one] - areas[other])


def _area(some: _Questions, labels: NDArray[np.bool_], scores: Floats) -> Floats:
    weights = np.tile(some.drawn.samples, len(labels) // len(some))
    return Auroc(labels, weights)(scores[:, None])[:, 0].astype(np.float64)


def _fitted(some: _Questions, labels: NDArray[np.bool_], columns: Sequence[Floats]) -> Floats:
    """Log-odds of a logistic regression on some columns, out of fold; questions of a cluster are in one fold."""
    cases = len(labels) // len(some)
    folds = make_folds(labels, np.tile(some.clusters, cases), repeats=1, halves=False)
    features, found = np.stack(columns, axis=1), np.empty(len(labels))
    for fold in range(folds.count):
        train = folds.training(0, fold, 0)
        scale = StandardScaler().fit(features[train])
        fit = LogisticRegression(max_iter=1000).fit(scale.transform(features[train]), labels[train])
        found[~train] = fit.decision_function(scale.transform(features[~train]))
    return found


def _cut_or_left_out(some: _Questions) -> Iterator[Number]:
    """How alike the loss under a cut of the whole passage and the loss without it in the prompt are."""

    def by_case(cases: Sequence[tuple[str, str, bool]]) -> tuple[Floats, Floats]:
        clean = [some.case(passage, name) for passage, name, _ in cases]
        cut = [own - some.case(passage, name, "cut_") for own, (passage, name, _) in zip(clean, cases, strict=True)]
        left = [own - some.case("closed", name) for own, (_, name, _) in zip(clean, cases, strict=True)]
        return np.stack(cut, axis=1), np.stack(left, axis=1)

    for called, cases in (("four cases", CASES), ("supported names", [case for case in CASES if case[2]]),
                          ("remembered name, original passage", CASES[:1])):  # fmt: skip
        cut, left = by_case(cases)
        yield some.correlation(f"r of cut and left out: {called}", cut, left)
        yield some.mean(f"cut minus left out, nats: {called}", (cut - left).mean(axis=1))
    cut, left = by_case(CASES[:1])
    surprisal = -some.case("closed", "memory")[:, None]
    yield some.correlation("r of cut and closed-book surprisal: remembered name, original passage", cut, surprisal)


def _sentences(some: _Questions) -> Iterator[Number]:
    """The same for the sentences that hold the remembered name, in original passages that have others."""
    clean = some.case("original", "memory")
    cut, left = (clean - some.of[name] for name in ("part_cut", "part_left_out"))
    yield some.correlation("r of cut and left out: sentences with the name", cut[:, None], left[:, None])
    yield some.mean("cut minus left out, nats: sentences with the name", cut - left)


def write_numbers(file: Path, numbers: Sequence[Number]) -> None:
    """Write the table."""
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(Number._fields)
        for each in numbers:
            ends = (f"{value:.5g}" for value in (each.value, each.low, each.high))
            writer.writerow([each.model, each.questions, each.measure, *ends, each.n])
