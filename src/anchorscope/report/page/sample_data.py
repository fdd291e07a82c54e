"""The samples behind the numbers, as columns for a page: texts, marks, grades, read-outs, groups and scores.

One row for each traced sample of each model and set: those that probes were fitted on and every number is made of.
Read-outs are P of "correct", mean over repeats, as logits to a thousandth: a page can sort, filter and measure again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from anchorscope.detectors.compare import kinds_of_error
from anchorscope.errors import StoreError
from anchorscope.grades.grading import DEFAULT, grader
from anchorscope.pathways.members import Members, members
from anchorscope.probes.record import READOUTS, WITHIN
from anchorscope.probes.recorded import Recorded, read_readouts
from anchorscope.report.page.chart_data import PageModel, datasets_of, shown_of
from anchorscope.report.page.detector_curves import SCALE, calibration, risk
from anchorscope.report.page.pack import Pack, SharedTexts
from anchorscope.spans.passages import holding
from anchorscope.spans.samples import Sample, read_samples
from anchorscope.store import Store
from anchorscope.study.terms import CONDITION_DEFS, ReadPoint
from anchorscope.traces.record import TRACES, Trace

LINES = {each.name: (each.words, *each.look) for each in CONDITION_DEFS if each.look}
"""Conditions whose read-outs a page carries, the most needed first, with the words, colour and dash of their lines."""
BUDGET = 14_000_000  # bytes that read-outs may take before they are packed; beyond it the last conditions are left out
SORTED_BY = (("knockout", "none"), ("knockout", "drift"), ("control_question", "none"), ("matched_question", "none"),
             ("knockout_context", "none"))  # fmt: skip
"""By which condition and correction a page can sort samples into groups."""
ACCEPTED = 12  # accepted answers that are shown at most
BETWEEN = "\x1f"  # separates them
LONGEST = 2**16  # characters of a passage, of which sentences are marked
LOGIT = SCALE  # of all logits
JUDGEMENTS = ("right", "wrong", "cannot_tell")

Scores = Mapping[tuple[int, str, str], Mapping[str, Mapping[str, float]]]
"""By run, model and set: by detector and id, the logit that the answer is right."""


@dataclass
class Columns:
    """The columns of all samples, filled cell by cell."""

    text: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    number: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    marks: dict[str, list[list[int]]] = field(default_factory=lambda: defaultdict(list))
    """Lists of whole numbers by name: where something begins and ends in a text."""
    words: SharedTexts = field(default_factory=SharedTexts)


def pack_samples(
    pack: Pack,
    stores: Sequence[Store],
    points: Sequence[ReadPoint],
    scores: Scores,
    with_text: Collection[str],
) -> dict[str, Any]:
    """Put all samples into the pack; what the page needs to find them. `with_text`: datasets whose texts are shown."""
    columns, cells, start = Columns(), [], 0
    conditions = _conditions(stores, points)
    for model, one, dataset, rows in _traced(stores, points):
        cell = {
            "run": one.run,
            "model": model,
            "set": datasets_of(stores).index(dataset),
            "start": start,
            "count": len(rows),
            "text": dataset in with_text,
            "points": [_pack_point(pack, one, dataset, point, conditions) for point in points],
        }
        of_cell = scores.get((one.run, one.model, dataset), {})
        cell["curves"] = {name: _pack_curves(pack, rows, by_id) for name, by_id in of_cell.items()}
        _fill(columns, one, dataset, rows, of_cell, dataset in with_text)
        cells.append(cell)
        start += len(rows)
    detectors = list(dict.fromkeys(name for by_detector in scores.values() for name in by_detector))
    return {
        "rows": start,
        "cells": cells,
        "columns": _pack_columns(pack, columns),
        "words": columns.words.all,
        "conditions": list(conditions),
        "detectors": detectors,
        "scores": [pack.scaled(_column_of(columns.number[f"score {name}"], start), LOGIT) for name in detectors],
    }


def _pack_curves(pack: Pack, rows: Sequence[Trace], scores: Mapping[str, float]) -> list[int]:
    """Risk against coverage, and calibration, of one detector."""
    scored = [row for row in rows if np.isfinite(scores.get(row.id, np.nan))]
    right, probability = np.array([(row.correct, row.probability) for row in scored]).reshape(-1, 2).T
    values = np.rint(LOGIT * _column_of([scores[row.id] for row in scored], len(scored))) / LOGIT
    return [pack.add(risk(values, right == 1, probability)), pack.add(calibration(values, right == 1))]


def _traced(stores: Sequence[Store], points: Sequence[ReadPoint]) -> Iterator[tuple[int, PageModel, str, list[Trace]]]:
    """Every model, as the page counts them, and set that has read-outs at some read point; its traced samples."""
    for model, one in enumerate(shown_of(stores)):
        for dataset in (spec.name for spec in one.store.study.datasets):
            cell = one.store.results(one.model, dataset)
            if any(cell.entry(READOUTS.at(point)) is not None for point in points):
                yield model, one, dataset, list(cell.table(TRACES))


def _conditions(stores: Sequence[Store], points: Sequence[ReadPoint]) -> tuple[str, ...]:
    """Which read-outs are kept: as many conditions as fit."""
    there = [name for name in LINES if any(name in store.study.traces.conditions for store in stores)]
    size = 0
    for _, one, dataset, rows in _traced(stores, points):
        cell = one.store.results(one.model, dataset)
        for point in points:
            if cell.entry(READOUTS.at(point)) is not None:
                batch = next(cell.table(READOUTS.at(point)).batches(["logits"]))
                size += 2 * len(rows) * len(batch.column("logits")[0].as_py()[0][0])
    return tuple(there[: max(2, BUDGET // max(1, size))])


def _pack_point(
    pack: Pack, one: PageModel, dataset: str, point: ReadPoint, conditions: Sequence[str]
) -> dict[str, Any] | None:
    """The read-outs of one cell at one read point, and who is in which group."""
    if one.store.results(one.model, dataset).entry(READOUTS.at(point)) is None:
        return None
    recorded = read_readouts(one.store, one.model, dataset, point)
    groups = members(recorded.readouts, SORTED_BY)
    mean = _mean_logits(recorded, groups, conditions)
    return {
        "layers": recorded.readouts.layers,
        "anchor": groups.anchor_layer,
        "logits": {name: pack.add(logits) for name, logits in mean.items()},
        "flips": {
            "|".join(name): [pack.bits(flips.layer), pack.bits(flips.half), pack.bits(flips.anchor_half)]
            for name, flips in groups.flips.items()
        },
    }


def _mean_logits(recorded: Recorded, found: Members, conditions: Sequence[str]) -> dict[str, NDArray[np.int16]]:
    """By condition, (sample, layer): the logit of P, mean over repeats, in thousandths; its sign is never lost."""
    read = recorded.readouts
    mean = {
        name: expit(read.logits[index, :, 0].astype(np.float64)).mean(axis=0)
        for index, name in enumerate(read.conditions)
        if name in conditions
    }
    mean["clean"] = found.probability.astype(np.float64)
    packed = {}
    for name, p in mean.items():
        whole = np.clip(np.rint(LOGIT * logit(np.clip(p, 1e-14, 1 - 1e-14))), -32000, 32000)
        packed[name] = np.where((whole == 0) & (p < 0.5), -1, whole).astype(np.int16)
    return packed


def _fill(
    columns: Columns,
    one: PageModel,
    dataset: str,
    rows: Sequence[Trace],
    scores: Mapping[str, Mapping[str, float]],
    with_text: bool,
) -> None:
    """Add the samples of one cell. Without text, all words that the dataset or the model wrote are left empty."""
    samples = _samples(one, dataset, {row.id for row in rows})
    sampled = _sampled(one, dataset)
    right = np.array([row.correct for row in rows])
    errors = kinds_of_error([row.answer for row in rows], right, [row.kind for row in rows])
    for row, error in zip(rows, errors, strict=True):
        sample = samples[row.id]
        columns.text["id"].append(row.id)
        if with_text:
            _fill_texts(columns, row, sample)
        else:
            _fill_no_texts(columns)
        by = sample.grade.by or ""
        relation = row.relation or "" if with_text else ""
        shared = {"by": by, "kind": row.kind, "error": error, "relation": relation, "second": second_rule(by)}
        for name, word in shared.items():
            columns.number[name].append(columns.words(word))
        accepted = sample.question.answers
        second = grader(shared["second"])(row.answer, accepted, row.question).judgement
        columns.number["second_says"].append(JUDGEMENTS.index(second))
        columns.number["right"].append(row.correct)
        columns.number["popularity"].append(np.nan if row.popularity is None else row.popularity)
        columns.number["probability"].append(row.probability)
        columns.number["logprob"].append(sum(row.logprobs))
        columns.number["tokens"].append(len(row.logprobs))
        columns.number["cut"].append(row.cut_tokens)
        _fill_sampled(columns, sampled.get(row.id, []), with_text)
    for name, by_id in scores.items():
        scored = columns.number[f"score {name}"]
        scored += [np.nan] * (len(columns.number["right"]) - len(rows) - len(scored))
        scored += [by_id.get(row.id, np.nan) for row in rows]


def second_rule(by: str) -> str:
    """The rule that a grade is held against: another one than it was given by."""
    return "plain" if by == DEFAULT else DEFAULT


def _samples(one: PageModel, dataset: str, ids: set[str]) -> dict[str, Sample]:
    samples = {sample.question.id: sample for sample in read_samples(one.store, one.model, dataset, ids)}
    if missing := ids - set(samples):
        raise StoreError(
            f"{one.model}, {dataset}: {len(missing)} traced samples have no question",
            "Run the study again: anchorscope run STUDY",
        )
    return samples


def _sampled(one: PageModel, dataset: str) -> dict[str, list[tuple[str, bool, int, float]]]:
    """By question, the distinct answers that were sampled to it and read: text, grade, how often, log-probability."""
    cell, answers = one.store.results(one.model, dataset), defaultdict(list)
    for point in one.store.study.traces.points[:1]:
        if cell.entry(WITHIN.at(point)) is not None and cell.complete(WITHIN.at(point)):
            for batch in cell.table(WITHIN.at(point)).batches(["id", "answer", "correct", "times", "logprob"]):
                for row in batch.to_pylist():
                    answers[row["id"]].append((row["answer"], row["correct"], row["times"], row["logprob"]))
    return answers


def _fill_sampled(columns: Columns, answers: Iterable[tuple[str, bool, int, float]], with_text: bool) -> None:
    for text, correct, times, logprob in answers:
        columns.text["sampled"].append(text if with_text else "")
        columns.number["sampled_right"].append(correct)
        columns.number["sampled_times"].append(times)
        columns.number["sampled_logprob"].append(logprob)
    columns.number["sampled_end"].append(len(columns.text["sampled"]))


def _fill_texts(columns: Columns, row: Trace, sample: Sample) -> None:
    columns.text["question"].append(row.question)
    columns.text["answer"].append(row.answer)
    columns.text["accepted"].append(BETWEEN.join(_accepted(sample)))
    columns.text["alias"].append(sample.grade.alias or "")
    columns.marks["question"].append(_as_javascript(row.question, sample.spans.exact_question_text))
    columns.marks["answer"].append(_as_javascript(row.answer, sample.spans.exact_answer_text))
    passage = sample.answer.context or ""
    spans = holding(passage, [*sample.question.answers, row.answer[slice(*sample.spans.exact_answer_text)]])
    columns.text["context"].append(passage)
    columns.marks["context"].append(
        _as_javascript(passage, [place for span in spans if span[1] < LONGEST for place in span])
    )
    alias = (sample.grade.alias_start, sample.grade.alias_end)
    columns.marks["found"].append(_as_javascript(row.answer, [place for place in alias if place is not None]))


def _fill_no_texts(columns: Columns) -> None:
    for name in _PRIVATE:
        columns.text[name].append("")
    for name in _MARKED:
        columns.marks[name].append([])


def _accepted(sample: Sample) -> list[str]:
    """Accepted answers to show: the one that was found first, spellings that differ in case once."""
    alias = [sample.grade.alias] if sample.grade.alias else []
    by_letters = {answer.casefold(): answer for answer in reversed([*alias, *sample.question.answers])}
    return list(by_letters.values())[::-1][:ACCEPTED]


def _as_javascript(text: str, places: Sequence[int]) -> list[int]:
    """Places in a text, counted as JavaScript does: a character beyond the first 65,536 is two."""
    if text.isascii():
        return list(places)
    return [len(text[:place].encode("utf-16-le")) // 2 for place in places]


_TYPES: dict[str, Any] = {
    "by": np.uint16, "kind": np.uint16, "error": np.uint16, "relation": np.uint16, "second": np.uint16,
    "second_says": np.uint8, "right": np.uint8, "popularity": np.float32, "probability": np.float32,
    "logprob": np.float32, "tokens": np.uint16, "cut": np.uint16, "sampled_right": np.uint8,
    "sampled_times": np.uint16, "sampled_logprob": np.float32, "sampled_end": np.uint32,
}  # fmt: skip
_PRIVATE = ("question", "answer", "accepted", "alias", "context")  # texts of a sample; not everyone's to pass on
_MARKED = ("question", "answer", "context", "found")  # texts in which places are marked


def _pack_columns(pack: Pack, columns: Columns) -> dict[str, Any]:
    """By name, where each column is."""
    packed: dict[str, Any] = {name: pack.add(np.array(columns.number[name], kind)) for name, kind in _TYPES.items()}
    for name in ("id", "sampled", *_PRIVATE):
        packed[f"{name} text"] = pack.texts(columns.text[name])
    for name in _MARKED:
        places = columns.marks[name]
        flat = [place for row in places for place in row]
        ends = np.cumsum([len(row) for row in places])
        packed[f"{name} marks"] = [pack.add(np.array(flat, np.uint16)), pack.add(ends.astype(np.uint32))]
    return packed


def _column_of(values: Sequence[float], rows: int) -> NDArray[np.float64]:
    """Scores of all samples, missing where a cell has none."""
    return np.clip(np.array([*values, *[np.nan] * (rows - len(values))], np.float64), -32, 32)
