"""Log-probabilities of two given names under two passages and under none, for questions whose passage was changed.

Each question has the name that its original passage holds and that a model may remember (`memory`), and the name that
stands there in the changed passage (`substitute`). Both are scored behind the original passage, behind the changed one
and without a passage. So each name is once supported by the passage before it and once not, by construction, and no
answer is generated or graded. Names behind one prompt share its tokens in the pass.
"""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import nan
from pathlib import Path
from typing import Any

import torch

from anchorscope.answers.generate import Generator
from anchorscope.models.batches import plan_batches
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter, answer_ids
from anchorscope.questions.record import Question
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.passages import holding, sentences
from anchorscope.spans.record import Spans
from anchorscope.traces.knockout import Cut, Knockout
from anchorscope.traces.layout import Stream, clean_stream, cut_stream
from anchorscope.traces.tracer import Read, Tracer

Row = dict[str, Any]
CHUNK = 16  # questions that are scored before their rows are written
TOKENS = 2048  # in one pass


@dataclass(frozen=True)
class Scores:
    """The log-probabilities (natural, summed over tokens) of both names of one question."""

    id: str
    memory_tokens: int
    substitute_tokens: int
    original_memory: float
    original_substitute: float
    replaced_memory: float
    replaced_substitute: float
    closed_memory: float
    closed_substitute: float
    cut_original_memory: float = nan
    """The same with the attention to the passage cut, for some questions; nan for the others."""
    cut_original_substitute: float = nan
    cut_replaced_memory: float = nan
    cut_replaced_substitute: float = nan
    part_cut: float = nan
    """Of the remembered name, with the sentences of the original passage cut that hold it; nan where all hold it."""
    part_left_out: float = nan
    """The same, with these sentences left out of the text."""


class _Streams:
    """One prompt, the names that continue it, and passes that cut some of its tokens."""

    def __init__(
        self, tracer: Tracer, prompter: Prompter, row: Row, passage: str | None, names: Mapping[str, str]
    ) -> None:
        """`names`: each name by the field of `Scores` that its log-probability is."""
        self.id, self.layers, self.shared = row["id"], tracer.layers, len(prompter.shared_ids)
        prompt = prompter(row["question"], passage)
        self.ids, self.answers = prompt.ids, [answer_ids(prompter, prompt, name) for name in names.values()]
        # the prompt with the first name is the clean stream; other names continue from the same prompt
        self.streams = [clean_stream([*self.ids, *self.answers[0]], self.shared)]
        self.streams += [Stream(tuple(answer), len(self.ids)) for answer in self.answers[1:]]
        self.fields = list(enumerate(zip(names, self.answers, strict=True)))

    def add_cut(self, cut: Cut, fields: Sequence[str]) -> None:
        """A pass with this cut for each of the first names, by its field."""
        for field, answer in zip(fields, self.answers, strict=False):
            self.fields.append((len(self.streams), (field, answer)))
            self.streams.append(cut_stream([*self.ids, *answer], self.shared, cut, range(self.layers)))

    def said(self, sample: int) -> Iterator[tuple[str, list[tuple[Read, int]]]]:
        """By field, the tokens of its name, each with the token before it."""
        for stream, (field, answer) in self.fields:
            yield field, [(Read(sample, stream, place), token) for place, token in enumerate(answer, len(self.ids) - 1)]


def score_all(
    model: Model, prompter: Prompter, rows: Sequence[Row], cuts: int, parts: int, file: Path, minutes: float
) -> list[Scores]:
    """Score questions in the order of a hash of their ids, and add each chunk to `file`, which a later call continues.

    The first `cuts` questions are scored with their passages cut too, and the first `parts` with the sentences cut or
    left out that hold the remembered name. No chunk is started after `minutes`.
    """
    done = read_scores(file) if file.exists() else []
    known, start = {row.id for row in done}, time.monotonic()
    order = in_hash_order(rows)
    places = {row["id"]: place for place, row in enumerate(order)}
    left = [row for row in order if row["id"] not in known]
    tracer = Tracer(model, prompter.shared_ids, ())
    for begin in range(0, len(left), CHUNK):
        if time.monotonic() - start > 60 * minutes:
            break
        chunk = left[begin : begin + CHUNK]
        wanted = [(places[row["id"]] < cuts, places[row["id"]] < parts) for row in chunk]
        done += (scored := _score(tracer, prompter, chunk, wanted))
        _append(file, scored)
        print(f"{len(done):,} of {len(rows):,} questions, {time.monotonic() - start:,.0f} s", flush=True)
    return done


def in_hash_order(rows: Iterable[Row]) -> list[Row]:
    """The questions in a random order that depends on nothing but their ids."""
    return sorted(rows, key=lambda row: hashlib.sha256(row["id"].encode()).hexdigest())


def _score(
    tracer: Tracer, prompter: Prompter, rows: Sequence[Row], wanted: Sequence[tuple[bool, bool]]
) -> list[Scores]:
    # 1. the prompts of each question
    parts: list[_Streams] = []
    values: dict[str, dict[str, Any]] = {}
    for row, (with_cuts, with_sentences) in zip(rows, wanted, strict=True):
        for passage, text in passages_of(row).items():
            names = {f"{passage}_{name}": each for name, each in names_of(row).items()}
            streams = _Streams(tracer, prompter, row, text, names)
            parts.append(streams)
            spans = _spans(prompter, row, text) if with_cuts and text is not None else None
            if spans is not None:
                streams.add_cut(Knockout("context").cut(spans), [f"cut_{name}" for name in names])
            without = _without(row) if with_sentences and passage == "original" else ""
            if spans is not None and without:
                streams.add_cut(Knockout("evidence").cut(spans), ["part_cut"])
                parts.append(_Streams(tracer, prompter, row, without, {"part_left_out": row["memory_answers"][0]}))
        tokens = [len(answer) for answer in streams.answers]
        values[row["id"]] = {"memory_tokens": tokens[0], "substitute_tokens": tokens[1]}
    # 2. batch by batch, prompts of about the same length together
    lengths = [sum(len(stream.ids) for stream in part.streams) for part in parts]
    for batch in plan_batches(lengths, 10**9, enough=TOKENS):
        said = [(parts[part].id, *each) for i, part in enumerate(batch) for each in parts[part].said(i)]
        flat = [token for _, _, tokens in said for token in tokens]
        _, logprobs = tracer.with_support([parts[part].streams for part in batch], [flat[0][0]], flat)
        sums = (each.double().sum() for each in torch.split(logprobs, [len(tokens) for _, _, tokens in said]))
        for (question, field, _), total in zip(said, sums, strict=True):
            values[question][field] = float(total)
    return [Scores(id=question, **found) for question, found in values.items()]


def passages_of(row: Row) -> dict[str, str | None]:
    """The passages under which names are scored."""
    return {"original": row["original_context"], "replaced": row["context"], "closed": None}


def names_of(row: Row) -> dict[str, str]:
    """The names that are scored."""
    return {"memory": row["memory_answers"][0], "substitute": row["answers"][0]}


def _spans(prompter: Prompter, row: Row, passage: str) -> Spans | None:
    name = row["memory_answers"][0]
    spans = SampleMaker(prompter)(Question.asked(row["question"], [name], passage), name).spans
    return None if spans.dropped else spans


def _without(row: Row) -> str:
    """The original passage without the sentences that hold the remembered name; empty where none does, or all do."""
    passage: str = row["original_context"]
    held = holding(passage, row["memory_answers"])
    kept = (passage[start:end] for start, end in sentences(passage) if (start, end) not in held)
    return "".join(kept).strip() if held else ""


def plainly(model: Model, prompter: Prompter, row: Row) -> dict[str, float]:
    """The six log-probabilities of one question, each by a pass of its own: slow and obvious."""
    generator = Generator(model, prompter.shared_ids, 1, TOKENS)
    found = {}
    for passage, text in passages_of(row).items():
        for name, answer in names_of(row).items():
            prompt = prompter(row["question"], text)
            found[f"{passage}_{name}"] = sum(generator.score([prompt.ids], [answer_ids(prompter, prompt, answer)])[0])
    return found


def read_scores(file: Path) -> list[Scores]:
    """The scores that were written."""
    kinds: dict[str, Any] = {"id": str, "memory_tokens": int, "substitute_tokens": int}
    with file.open(encoding="utf-8", newline="") as stream:
        return [
            Scores(**{name: kinds.get(name, float)(text) for name, text in row.items()})
            for row in csv.DictReader(stream)
        ]


def _append(file: Path, rows: Sequence[Scores]) -> None:
    new = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(Scores)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def read_conflicts(data: Path) -> list[Row]:
    """The rows of the set."""
    with (data / "conflicts.jsonl").open(encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]
