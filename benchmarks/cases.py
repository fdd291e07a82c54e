"""Real questions, the model's own answers to them, and their exact tokens: what every contender is timed on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorscope import ModelSpec, load_study
from anchorscope.answers.record import ANSWERS
from anchorscope.models.load import Model, load_model
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.stages import until
from anchorscope.spans.record import Spans
from anchorscope.spans.samples import read_samples
from anchorscope.store import Store
from anchorscope.study.terms import Condition, Into
from anchorscope.traces.conditions import stream_of
from anchorscope.traces.knockout import Cut, Knockout
from anchorscope.traces.layout import Stream, clean_stream, cut_stream

ROOT = Path(__file__).resolve().parents[1]
MODELS = {"smollm2-135m": "SmolLM2-135M", "gemma-3-270m": "Gemma-3-270m"}
FOLDERS = {"smollm2-135m": "SmolLM2-135M-Instruct", "gemma-3-270m": "gemma-3-270m"}
SETS = ("popqa", "triviaqa", "hotpotqa", "nq")
TWO: tuple[Condition, ...] = ("clean", "knockout")
FIVE: tuple[Condition, ...] = ("clean", "knockout", "control_question", "control_random", "answer_only")


@dataclass(frozen=True)
class Case:
    """One sample: its tokens, the first `shared` of which all samples share."""

    ids: list[int]
    shared: int
    spans: Spans
    moved: int = 0
    """By how many tokens it was moved to the right, for longer prompts."""

    @property
    def read(self) -> int:
        """The place that is read."""
        return self.spans.answer_last + self.moved

    def cut(self, into: Into) -> Cut:
        """The exact question tokens."""
        cut = Knockout(into=into).cut(self.spans)
        keys, queries = ([place + self.moved for place in each] for each in (cut.keys, cut.first_queries))
        return Cut(tuple(keys), tuple(queries))

    def row(self, conditions: Sequence[Condition], into: Into, layers: int) -> list[Stream]:
        """The streams of a sweep. Only a case that was not moved has more than two."""
        if conditions == TWO:
            return [clean_stream(self.ids, self.shared), self.cut_in(into, range(layers))]
        return [stream_of(c, self.ids, self.spans, self.shared, into, layers) for c in conditions]

    def cut_in(self, into: Into, layers: range) -> Stream:
        """The stream of a cut in some layers."""
        return cut_stream(self.ids, self.shared, self.cut(into), layers)

    def map_row(self, into: Into, layers: int) -> list[Stream]:
        """The streams of a map of single layers."""
        return [clean_stream(self.ids, self.shared), *(self.cut_in(into, range(at, at + 1)) for at in range(layers))]

    def longer(self, filler: Sequence[int], shared: bool) -> Case:
        """The same sample behind other text, which all samples share or each has for itself."""
        head = 1 if self.ids and self.shared else 0  # a BOS stays in front
        own = self.ids[self.shared :]
        ids = [*self.ids[:head], *filler, *own]
        return Case(ids, len(ids) - len(own) if shared else head, self.spans, len(ids) - len(own) - self.shared)


def folder_of(name: str, models: Path) -> Path:
    """The folder of a model in the form of transformers."""
    place = models / FOLDERS[name]
    if not (place / "config.json").exists():
        raise SystemExit(f"The model {name} is missing: there is no {place} with a config.json.")
    return place


def make_cases(
    name: str, shots: int, count: int, sets: Sequence[str], data: Path, folder: Path, work: Path
) -> list[Case]:
    """`count` samples, as many of each set, with the answers of the model in bfloat16."""
    each = -(-count // len(sets))
    study: dict[str, Any] = {
        "name": f"bench-{name}-{shots}-{count}-{'-'.join(sets)}",
        "models": [{"id": str(folder_of(name, folder)), "name": MODELS[name], "dtype": "bfloat16"}],
        # a few more: some are dropped
        "datasets": [{"set": s, "path": str(data / f"{s}.jsonl"), "sample": each + 8} for s in sets],
        "prompt": {"shots": shots},
    }
    path = work / f"{study['name']}.yaml"
    path.write_text(json.dumps(study))
    made = load_study(str(path))
    with Store.writing(work / study["name"], made) as store:
        Pipeline(store).make(until(made, "answers"))
        answers = store.results(MODELS[name], sets[0]).entry(ANSWERS)
        assert answers is not None
        shared = answers["inputs"]["prompt"]["shared_ids"]
        cases: list[Case] = []
        for dataset in sets:
            whole = [s for s in read_samples(store, MODELS[name], dataset) if s.spans.dropped is None][:each]
            for sample in whole:
                end = sample.spans.answer_last + 1  # later tokens change nothing that is read
                ids = [*shared, *sample.answer.prompt_ids, *sample.answer.answer_ids][:end]
                cases.append(Case(ids, len(shared), sample.spans))
    return cases[:count]


def token_layers(rows: Sequence[Sequence[Stream]], shared: int, layers: int) -> int:
    """What must be computed: every distinct (token, condition) from the layer on where it differs; the prefix once."""
    return shared * layers + sum(len(stream.ids) * (layers - stream.joins) for row in rows for stream in row)


def model_of(name: str, dtype: str, folder: Path) -> Model:
    """The model, loaded."""
    spec = {"id": str(folder_of(name, folder)), "name": MODELS[name], "dtype": dtype}
    return load_model(ModelSpec.model_validate(spec))
