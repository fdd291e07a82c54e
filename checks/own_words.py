"""How many labelled words of its own does a model write where real passages are cut before a name, date or number?

    python checks/own_words.py --models DIR --data DIR [--model NAME] [--output FILE] [--crossed FILE]
    python checks/own_words.py ranked --models DIR [--model NAME] --output FILE --crossed FILE [--rows FILE]

Steps: `continued` lets the model continue prefixes from passages of the set, greedily and by sampling, grades the
entity that each continuation begins with, and writes one JSON object per labelled continuation to --output. `swapped`
swaps the entities of pairs of prefixes, and writes the four texts of each pair to --crossed. It needs no model.
`ranked` reads both files with the model and measures detectors of words on them.
checks/judged/SmolLM2-135M-own-words.jsonl holds readings of continuations that were labelled wrong.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.models.opened import open_model
from anchorscope.pathways.intervals import Auroc, FloatArray, estimate, resample
from anchorscope.progress import Advance, printed
from anchorscope.questions.file_rows import FileRows
from anchorscope.words.continuations import EntityCut, Passage, continue_texts, crossed, cut
from anchorscope.words.detectors import WordData, score
from anchorscope.words.files import SpanLabels, read_texts
from anchorscope.words.measure import ADDS, RESAMPLES
from anchorscope.words.read import WordReader
from anchorscope.words.reading import Reading
from anchorscope.words.record import RIGHT, UNJUDGED, WRONG, Text
from helpers.steps import Check, Figures, Options
from helpers.tables import write_rows
from weights import SMALL, TITLES, unpacked

check = Check(__doc__)


def passages(data: Path, dataset: str, count: int) -> list[Passage]:
    """So many passages of a set, from all over it. A passage is named by its number among those that differ."""
    found: dict[str, Passage] = {}
    for _, row in FileRows(data / f"{dataset}.jsonl"):
        text = row.get("original_context") or row["context"]
        if text not in found:
            found[text] = Passage(f"{dataset}-{len(found)}", text, row.get("subject") or "")
    every, count = list(found.values()), min(count, len(found))
    return [every[number * len(every) // count] for number in range(count)]


def row_of(text: Text, **more: Any) -> dict[str, Any]:
    """A record as a line of a file."""
    labels = {True: "wrong", False: "right"}
    spans = [
        {"start": span.start, "end": span.end, "label": labels[span.wrong]}
        for span in text.spans or ()
        if span.wrong is not None
    ]
    own = {name: getattr(text, name) for name in ("id", "cluster", "prompt", "continues", "response")}
    return {**own, "spans": spans, "writer": text.writer, **more}


def written(rows: Iterable[dict[str, Any]], path: Path | None) -> Iterator[dict[str, Any]]:
    """The same rows, each written to the file if there is one."""
    if path is None:
        yield from rows
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            yield row


def by_kind(cuts: Iterable[EntityCut]) -> Figures:
    return dict(Counter(one.kind for one in cuts))


@check.step("data", "models")
def continued(options: Options, work: Path) -> Figures:
    """Continuations of the model, labelled by the passages."""
    model = open_model(
        unpacked(options.model, options.models), name=TITLES.get(options.model, options.model), dtype="float32"
    )
    cuts = cut(passages(options.data, options.set, options.passages), options.cuts)
    outcomes: Counter[str] = Counter()
    labels: dict[str, Counter[str]] = defaultdict(Counter)
    prefixes: dict[str, set[str]] = defaultdict(set)

    def rows() -> Iterator[dict[str, Any]]:
        made = continue_texts(
            model, cuts, options.samples, options.temperature, options.seed, tokens=options.tokens, progress=printed
        )
        for one in made:
            outcomes[one.outcome] += 1
            if one.text is not None:
                labels[one.cut.kind][one.outcome] += 1
                prefixes[one.cut.id].add(one.outcome)
                yield row_of(one.text, kind=one.cut.kind)

    start = time.perf_counter()
    labelled = sum(1 for _ in written(rows(), options.output))
    return {
        "model": model.name,
        "prefixes": len(cuts),
        "prefixes by kind": by_kind(cuts),
        "continuations": sum(outcomes.values()),
        "per second": round(sum(outcomes.values()) / (time.perf_counter() - start), 1),
        "outcomes": dict(outcomes.most_common()),
        "labelled": labelled,
        "share right": round(outcomes["right"] / max(1, labelled), 3),
        "by kind": {
            kind: {"labelled": own.total(), "share right": round(own["right"] / own.total(), 3)}
            for kind, own in sorted(labels.items())
        },
        "prefixes with a label": len(prefixes),
        "prefixes with both": sum(len(own) > 1 for own in prefixes.values()),
    }


@check.step("data", by_default=False)
def swapped(options: Options, work: Path) -> Figures:
    """Pairs of prefixes whose entities are swapped."""
    cuts = cut(passages(options.data, options.set, options.passages))
    texts = crossed(cuts)
    kinds = {one.id: one.kind for one in cuts}
    named = (row_of(text, kind=kinds[text.id.partition("+")[0]]) for text in texts)
    count = Counter(row["kind"] for row in written(named, options.crossed))
    return {
        "prefixes": len(cuts),
        "pairs": len(texts) // 4,
        "texts by kind": dict(count),
        "clusters": len({text.cluster for text in texts}),
    }


@check.step("models", by_default=False)
def ranked(options: Options, work: Path) -> Figures:
    """How well detectors of words rank the texts in the files that the steps before wrote."""
    model = open_model(
        unpacked(options.model, options.models), name=TITLES.get(options.model, options.model), dtype="float32"
    )
    reader = WordReader(model, identity=True)
    rows = []
    for name, path in (("own", options.output), ("crossed", options.crossed)):
        if path is not None:
            texts = read_texts(path, SpanLabels(right=frozenset({"right"})), judged=True)
            with printed(f"{name}: reading", len(texts)) as advance:
                data = WordData.of(advanced(reader(texts), advance), reader.layers)
            rows += rows_of(data, model.name, name, options.nulls)
    if not rows:
        raise SystemExit("Give files that the steps before wrote: --output FILE, --crossed FILE, or both")
    if options.rows is not None:
        write_rows(options.rows, rows)
    return {f"{row['texts']}, {row['detector']}, {row['measure']}": round(row["value"], 3) for row in rows}


def advanced(readings: Iterable[Reading], advance: Advance) -> Iterator[Reading]:
    for reading in readings:
        advance(1)
        yield reading


def rows_of(data: WordData, model: str, texts: str, draws: int, seed: int = 0) -> list[dict[str, Any]]:
    """A row for each number of each detector, with its interval; the null has its mean and its largest draw.

    A text counts by the highest of its judged words. `together` is measured among the texts of one prefix, or of one
    pair of prefixes.
    """
    same = area if texts == "own" else fits
    groups = grouped(data)
    first = np.unique(data.response, return_index=True)[1]
    weights = resample(data.cluster[first], 1, RESAMPLES, seed).samples
    own = weights[:, [members[0] for members in groups]].astype(np.float64)

    def measured(data: WordData) -> dict[str, dict[str, FloatArray]]:
        wrong = wrong_texts(data)
        found = {}
        for name, one in score(data, seed=seed).items():
            highest = highest_of(data, one.logits)
            each = np.array([same(highest[members], wrong[members]) for members in groups])
            auroc = Auroc(wrong, weights)(highest[:, None])[:, 0]
            found[name] = {"auroc": auroc, "together": own @ each / own.sum(axis=1)}
        return found

    found = measured(data)
    for more, rival in ADDS:
        found[f"{more} - {rival}"] = {name: series - found[rival][name] for name, series in found[more].items()}
    counts = {"responses": len(data.texts), "wrong": int(wrong_texts(data).sum()), "groups": len(groups)}
    rows = [
        {"model": model, "texts": texts, "detector": name, "measure": measure, **estimate(series)._asdict(), **counts}
        for name, measures in found.items()
        for measure, series in measures.items()
    ]
    null: dict[str, list[float]] = defaultdict(list)
    with printed(f"{texts}: null", draws) as advance:
        for draw in range(draws):
            moved = swapped_labels(data, groups, texts != "own", np.random.default_rng([seed, 5, draw]))
            for name, measures in measured(moved).items():
                null[name].append(float(measures["together"][0]))
            advance(1)
    for name, values in null.items():
        value = {"value": float(np.mean(values)), "low": min(values), "high": max(values)}
        rows.append({"model": model, "texts": texts, "detector": name, "measure": "null_together", **value, **counts})
    return rows


def highest_of(data: WordData, logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """(text): the logit of the highest judged word"""
    highest = np.full(len(data.texts), -np.inf)
    np.maximum.at(highest, data.response[data.judged], logits[data.judged])
    return highest


def wrong_texts(data: WordData) -> NDArray[np.bool_]:
    """(text): whether a judged word is wrong"""
    wrong = np.zeros(len(data.texts), bool)
    np.logical_or.at(wrong, data.response, data.wrong)
    return wrong


def grouped(data: WordData) -> list[NDArray[np.intp]]:
    """The texts of each prefix, or of each pair of prefixes, if some are wrong and some are right."""
    wrong, members = wrong_texts(data), defaultdict(list)
    for number, text in enumerate(data.texts):
        members[text.id.partition("#")[0]].append(number)
    return [np.array(own) for own in members.values() if 0 < wrong[own].sum() < len(own)]


def swapped_labels(
    data: WordData, groups: Sequence[NDArray[np.intp]], pairs: bool, random: np.random.Generator
) -> WordData:
    """Labels that are shuffled among the texts of a prefix, or turned around in half of the pairs."""
    wrong = wrong_texts(data)
    for own in groups:
        wrong[own] = wrong[own] ^ bool(random.integers(2)) if pairs else random.permutation(wrong[own])
    labels = np.where(wrong[data.response], WRONG, RIGHT)
    return data.with_labels(np.where(data.judged, labels, UNJUDGED).astype(np.int8))


def area(scores: NDArray[np.float64], wrong: NDArray[np.bool_]) -> float:
    """AUROC among the continuations of a prefix."""
    differences = scores[wrong][:, None] - scores[~wrong][None]
    return float(((differences > 0) + 0.5 * (differences == 0)).mean())


def fits(scores: NDArray[np.float64], wrong: NDArray[np.bool_]) -> float:
    """Whether the two wrong texts of a pair are higher, taken together: the prefixes and the entities cancel."""
    difference = scores[wrong].sum() - scores[~wrong].sum()
    return float(difference > 0) + 0.5 * float(difference == 0)


check.option("--model", f"Let this model continue, one of {', '.join(SMALL)}", SMALL[0])
check.option("--set", "Cut the passages of DIR/SET.jsonl", "squad", metavar="SET")
check.option("--passages", "Cut at most this many passages", 200)
check.option("--cuts", "Continue at most this many prefixes of each passage", 4)
check.option("--samples", "Sample this many continuations of each prefix beside the greedy one", 8)
check.option("--temperature", "Sample at this temperature", 0.8)
check.option("--tokens", "Let a continuation have at most this many tokens", 12)
check.option("--seed", "Draw the samples from this seed", 0)
check.option("--output", "Write the labelled continuations to FILE", metavar="FILE", type=Path)
check.option("--crossed", "Write the crossed texts to FILE", metavar="FILE", type=Path)
check.option("--nulls", "Draws of the null of `ranked`", 5)
check.option("--rows", "Write the numbers of `ranked` to FILE", metavar="FILE", type=Path)

if __name__ == "__main__":
    check()
