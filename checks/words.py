"""Do detectors of words find wrong words, by what and by how much more than their rivals, and are promises kept?

    python checks/words.py quality --models DIR --texts FILE --wrong unwanted --leave-out questionable,benign,unlabelled
    python checks/words.py promises coverage

Steps: `quality` reads a file of texts with labelled spans with one model, measures all detectors out of fold beside the
permutation null, for all words and for names and numbers alone, and writes the rows to --output; `promises` fits and
promises in made-up worlds whose clusters are of unequal size and in which large clusters are scored differently;
`coverage` counts how often the intervals hold the mean over all worlds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from anchorscope.models.opened import open_model
from anchorscope.progress import printed
from anchorscope.words.detector import WordPromise, keep
from anchorscope.words.detectors import WordData, score
from anchorscope.words.features import FEATURES
from anchorscope.words.files import SpanLabels, read_texts
from anchorscope.words.measure import Ruler, additions, compare, names_and_numbers, nulls
from anchorscope.words.read import WordReader
from anchorscope.words.record import RIGHT, WRONG, Text
from helpers.steps import Check, Figures, Options
from helpers.tables import write_rows
from weights import TITLES, unpacked

check = Check(__doc__)
check.option("--model", "Read with this model", "smollm2-135m")
check.option("--texts", "File of texts with labelled spans", None, type=Path)
check.option("--wrong", "Labels of wrong spans", "wrong")
check.option("--right", "Labels of right spans", "", type=str)
check.option("--leave-out", "Labels that count neither way", "unsure")
check.option("--clusters", "Read the texts of the first CLUSTERS clusters, 0 for all", 0)
check.option("--nulls", "Draws of the permutation null", 5)
check.option("--worlds", "Made-up worlds for promises", 200)
check.option("--output", "Write the rows of quality to this CSV file", None, type=Path)

DELTA = 0.1  # probability with which a promise may be broken
Row = Mapping[str, Any]


# --- real texts


@check.step("models", by_default=False)
def quality(options: Options, work: Path) -> Figures:
    """All detectors out of fold, their rivals and their nulls."""
    if options.texts is None:
        raise SystemExit("Give a file of texts with labelled spans: --texts FILE")
    listed = (frozenset(filter(None, given.split(","))) for given in (options.wrong, options.right, options.leave_out))
    texts = read_texts(options.texts, SpanLabels(*listed), judged=True)
    first = list(dict.fromkeys(text.cluster for text in texts))[: options.clusters or None]
    chosen = [text for text in texts if text.cluster in set(first)]
    model = open_model(unpacked(options.model, options.models), dtype="float32")
    reader = WordReader(model, identity=True)
    with printed("reading", len(chosen)) as advance:
        data = WordData.of(_counted(reader(chosen), advance), reader.layers)
    rows = rows_of(data, TITLES.get(options.model, options.model), options.texts.stem, options.nulls)
    if options.output is not None:
        write_rows(options.output, rows)
    return {f"{row['words']}, {row['detector']}, {row['measure']}": round(row["value"], 3) for row in rows}


def _counted(readings: Iterator[Any], advance: Any) -> Iterator[Any]:
    for reading in readings:
        advance(1)
        yield reading


def rows_of(data: WordData, model: str, texts: str, draws: int, seed: int = 0) -> list[Row]:
    """One row for each number of each detector, with its interval; the null has its mean and its largest draw."""
    scores = score(data, seed=seed)
    null = nulls(data, draws=draws, seed=seed, progress=printed) if draws else {}
    rows: list[Row] = []
    for words, only in (("all", None), ("names and numbers", names_and_numbers(data))):
        ruler = Ruler(data, seed, only)
        counts = {"judged": ruler.rows, "responses": len(data.texts), "mixed": ruler.mixed}
        same = {"model": model, "texts": texts, "words": words}
        for name, measured in compare(scores, ruler).items():
            for measure, estimate in measured._asdict().items():
                rows.append({**same, "detector": name, "measure": measure, **estimate._asdict(), **counts})
        for (name, rival), difference in additions(scores, ruler).items():
            for measure, estimate in difference._asdict().items():
                rows.append(
                    {**same, "detector": f"{name} - {rival}", "measure": measure, **estimate._asdict(), **counts}
                )
        if only is None:
            for name, one in null.items():
                for measure, (mean, largest) in one._asdict().items():
                    value = {"value": mean, "low": math.nan, "high": largest}
                    rows.append({**same, "detector": name, "measure": f"null_{measure}", **value, **counts})
    return rows


# --- made-up worlds


def world(seed: int, clusters: int, effect: float = 1.0) -> tuple[WordData, np.ndarray]:
    """Responses of clusters of unequal size and the logits of a detector, which is worse on large clusters."""
    random = np.random.default_rng([seed, 41])
    sizes = np.where(random.random(clusters) < 0.5, 1, 1 + random.geometric(0.25, clusters))
    cluster_of = np.repeat(np.arange(clusters), sizes)
    lengths = random.integers(5, 30, len(cluster_of))
    response = np.repeat(np.arange(len(cluster_of)), lengths)
    cluster = cluster_of[response]
    share = expit(-2.5 + 1.2 * random.standard_normal(len(cluster_of)))
    wrong = random.random(len(response)) < share[response]
    level = 0.5 * random.standard_normal(clusters) + 0.4 * np.log(sizes)
    logits = effect * wrong + random.standard_normal(len(response)) + level[cluster]
    nothing = {group: np.zeros((len(response), len(names)), np.float32) for group, names in FEATURES.items()}
    nothing["form"][:, 0] = logits
    texts = tuple(
        Text(str(number), " ".join(["word"] * lengths[number]), cluster=str(own))
        for number, own in enumerate(cluster_of)
    )
    empty = np.empty((len(response), 0), np.float32)
    nothing["overlap"][:, 0] = 0.5 * effect * wrong + random.standard_normal(len(response))  # for `coverage`
    labels = np.where(wrong, WRONG, RIGHT).astype(np.int8)
    return WordData(texts, nothing, (), (), empty, labels, response, cluster, {}), logits


def two_steps(data: WordData, flags: np.ndarray, among: np.ndarray) -> float:
    """Share of flagged ones where one is drawn from each cluster: the mean in each cluster, then over clusters."""
    cluster = data.cluster[among]
    total, count = np.bincount(cluster, flags[among]), np.bincount(cluster)
    return float((total[count > 0] / count[count > 0]).mean())


def broken(promise: WordPromise, kept: WordPromise, test: WordData, logits: np.ndarray) -> bool:
    """Whether a threshold breaks its promise in a very large world."""
    flagged = expit(logits) > kept.threshold
    if promise.kind == "false_alarms":
        any_flag, errors = (np.zeros(len(test.texts), bool) for _ in range(2))
        np.logical_or.at(any_flag, test.response, flagged)
        np.logical_or.at(errors, test.response, test.wrong)
        of_response = np.unique(test.response, return_index=True)[1]
        return two_steps(test, any_flag[test.response], of_response[~errors]) > promise.at_most
    shares = [two_steps(test, flagged, np.flatnonzero(mask)) for mask in (~test.wrong, test.wrong)]
    base = 1 - test.wrong.mean()
    return base * shares[0] / (base * shares[0] + (1 - base) * shares[1]) > promise.at_most


@check.step()
def promises(options: Options, work: Path) -> Figures:
    """How often promises about responses and flagged words are given, and broken for new ones."""
    out: Figures = {}
    for effect in (1.0, 3.0):
        test, test_logits = world(10**6, 20_000, effect)
        for promise in (
            WordPromise(kind="false_alarms", at_most=0.1, delta=DELTA),
            WordPromise(kind="right_flagged", at_most=0.2, delta=DELTA),
        ):
            given = failed = 0
            for seed in range(options.worlds):
                data, logits = world(seed, 300, effect)
                kept = keep(promise, data, logits, np.ones(len(data), bool), seed)
                if kept.threshold is not None:
                    given += 1
                    failed += bool(broken(promise, kept, test, test_logits))
            title = f"{promise.kind}, effect {effect:g}"
            out[title] = {"worlds": options.worlds, "given": given, "broken": failed}
            print(f"{title:40} {out[title]}", flush=True)
    return out


@check.step()
def coverage(options: Options, work: Path) -> Figures:
    """How often 95 % intervals of a detector that is fitted out of fold hold the mean over all worlds."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(options.worlds):
        data, _ = world(seed, 75, 1.0)
        scores = score(data, ["form", "overlap"], seed)
        ruler = Ruler(data, seed)
        measured = compare(scores, ruler)["form"]
        for name in ("auroc", "within", "response"):
            found.setdefault(name, []).append(getattr(measured, name))
        found.setdefault("difference of AUROC", []).append(
            additions(scores, ruler, (("overlap", "form"),))["overlap", "form"].auroc
        )
    out: Figures = {}
    for name, estimates in found.items():
        truth = float(np.mean([value for value, _, _ in estimates]))
        inside = sum(low <= truth <= high for _, low, high in estimates)
        out[name] = {"truth": round(truth, 3), "worlds": len(estimates), "covered": round(inside / len(estimates), 3)}
        print(f"{name:25} {out[name]}", flush=True)
    return out


@check.judge
def judge(figures: Figures) -> None:
    """Stop when a promise is broken more often than it may be, by more than chance (1 in 100)."""
    for title, row in figures.get("promises", {}).items():
        if isinstance(row, dict):
            most = DELTA * row["worlds"] + 2.33 * math.sqrt(row["worlds"] * DELTA * (1 - DELTA))
            assert row["broken"] <= most, f"{title}: broken in {row['broken']} of {row['worlds']} worlds"


if __name__ == "__main__":
    check()
