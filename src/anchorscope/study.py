"""A study: one typed object that is the YAML file, the Python argument and the record saved with a run.

The text under each field is its documentation: `anchorscope init` writes it as comments, and the error
for a wrong value quotes it. A later stage that needs a setting adds a field here, never a flag elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    PrivateAttr,
    StringConstraints,
    field_validator,
    model_validator,
)

from anchorscope.errors import QuestionsError

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""A name that becomes a folder: letters, digits, dot, dash and underscore, and it does not start with a dot."""

Text = Annotated[str, StringConstraints(min_length=1)]

RESERVED_MODEL_NAMES = frozenset({"questions", "figures", "report", "study.yaml"})  # beside a run's models


class Spec(BaseModel):
    """One part of a study: unknown keys are refused, values are not converted, instances do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class Example(Spec):
    """One solved question of a few-shot prompt."""

    question: Text
    """The question, as it would stand in a set."""
    answer: Text
    """Its short answer."""


DEFAULT_EXAMPLES = [
    Example(question=question, answer=answer)
    for question, answer in (
        ("Which planet is closest to the Sun?", "Mercury"),
        ("Who painted the ceiling of the Sistine Chapel?", "Michelangelo"),
        ("Which river flows through Vienna?", "Danube"),
        ("In which year did the Berlin Wall fall?", "1989"),
        ("Which gas do green plants take in from the air?", "carbon dioxide"),
        ("Which language do most people in Brazil speak?", "Portuguese"),
        ("How many sides does a hexagon have?", "six"),
        ("Which ocean is the largest?", "Pacific Ocean"),
    )
]


class PromptSpec(Spec):
    """How a question is put to a model."""

    style: Literal["completion", "chat"] = "completion"
    """completion: plain text, for base models. chat: the model's own chat template, for instruct models."""
    shots: Annotated[int, Field(ge=0)] = 4
    """How many of `examples` stand before the question, the same for every question."""
    examples: list[Example] = DEFAULT_EXAMPLES
    """Solved questions to choose the shots from, in this order. A question of a set that equals one is left out."""
    question: str = "Q: {question}"
    """The line that carries the question; {question} stands for its text."""
    cue: Text = "A:"
    """What stands before the answer, on a line of its own."""
    system: str = ""
    """The system turn (chat style only)."""
    chat_kwargs: dict[str, bool | int | FiniteFloat | str] = {}
    """Arguments for the chat template, such as enable_thinking: false (chat style only)."""

    @field_validator("question")
    @classmethod
    def _one_placeholder(cls, value: str) -> str:
        if value.count("{question}") != 1:
            raise ValueError("must contain {question} exactly once")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> PromptSpec:
        if self.shots > len(self.examples):
            raise ValueError(f"shots is {self.shots}, but there are only {len(self.examples)} examples")
        if self.style == "completion" and (self.system or self.chat_kwargs):
            raise ValueError("system and chat_kwargs belong to style: chat")
        return self


class ModelSpec(Spec):
    """A causal language model and how it is loaded."""

    id: Text
    """A Hugging Face id (org/model), a local folder, or a .gguf file."""
    name: Name = ""
    """What figures and folders call it. Default: the last part of `id`."""
    revision: str | None = None
    """Branch, tag or commit on the hub. Default: main; the commit it stood for is recorded with the run."""
    gguf: str | None = None
    """The .gguf file to take, when `id` is a hub repository that holds several."""
    dtype: Literal["auto", "bfloat16", "float32", "float64"] = "auto"
    """auto: as the weights were saved. Never float16: the residuals of some models overflow it."""
    device: Annotated[str, StringConstraints(pattern=r"^(auto|cpu|mps|(cuda|xpu)(:\d+)?)$")] = "auto"
    """cpu, cuda, cuda:1, mps; auto takes a GPU where there is one. Not together with device_map."""
    device_map: Literal["auto", "balanced", "balanced_low_0", "sequential"] | dict[str, int | str] | None = None
    """auto or balanced shards the layers over all GPUs; or a mapping from module to device."""
    attention: Literal["sdpa", "eager"] = "sdpa"
    """The attention code in transformers. Both take the knockout's mask; sdpa is faster and more exact."""
    prompt: PromptSpec | None = None
    """A prompt of this model's own. Default: the study's."""

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, data: Any) -> Any:
        data = {"id": data} if isinstance(data, str) else data
        if isinstance(data, dict) and isinstance(data.get("id"), str) and "name" not in data:
            last = PurePath(data["id"]).name.removesuffix(".gguf")
            data = {**data, "name": re.sub(r"[^A-Za-z0-9._-]", "-", last)}
        return data

    @field_validator("dtype", mode="before")
    @classmethod
    def _no_float16(cls, value: Any) -> Any:
        if value in ("float16", "fp16", "half"):
            raise ValueError("float16 is not offered: residuals of some models (Gemma) overflow it; take bfloat16")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> ModelSpec:
        if "://" in self.id:
            raise ValueError("give the id as owner/name, without the address of the hub")
        if self.name.lower() in RESERVED_MODEL_NAMES:
            raise ValueError(f"'{self.name}' is a folder of every run; give the model another name")
        if self.device_map is not None and self.device != "auto":
            raise ValueError("give device or device_map, not both")
        return self


class DatasetSpec(Spec):
    """A question set and how much of it is used."""

    set: Text
    """popqa, triviaqa, hotpotqa or nq; or the path of a YAML definition of your own (docs/questions.md)."""
    name: Name = ""
    """What figures and folders call it. Default: the set's name, or the definition's file name."""
    path: str | None = None
    """A local JSONL, Parquet or CSV file to read instead of the set's own source. Relative to the study's folder."""
    columns: Literal["plain", "source"] = "plain"
    """What the columns of `path` are called: plain (id, question, answers, …) or as in the set's source."""
    sample: Annotated[int, Field(ge=1)] | None = None
    """How many questions to draw, by seed and question id. Default: all. A larger sample contains the smaller."""

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, data: Any) -> Any:
        data = {"set": data} if isinstance(data, str) else data
        if isinstance(data, dict) and isinstance(data.get("set"), str) and "name" not in data:
            stem = PurePath(data["set"]).name
            stem = stem.removesuffix(".yaml").removesuffix(".yml")
            data = {**data, "name": re.sub(r"[^A-Za-z0-9._-]", "-", stem)}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> DatasetSpec:
        if self.columns == "source" and self.path is None:
            raise ValueError("columns: source says how to read `path`, and there is no path")
        return self

    def found_in(self, folder: Path) -> DatasetSpec:
        """The same set, read from `folder`/<set>.jsonl, .parquet or .csv; one with a file of its own stays as it is."""
        if self.path is not None or self.set.endswith((".yaml", ".yml")):
            return self
        for ending in (".jsonl", ".parquet", ".csv"):
            file = folder / f"{self.set}{ending}"
            if file.is_file():
                return self.model_copy(update={"path": str(file.resolve())})
        raise QuestionsError(f"{folder} holds no {self.set}.jsonl, {self.set}.parquet or {self.set}.csv")


class AnswersSpec(Spec):
    """Where the answers come from."""

    source: Literal["generate", "file"] = "generate"
    """generate: greedy decoding, first line. file: answers you already have, from `file`."""
    backend: Literal["transformers", "vllm"] = "transformers"
    """What generates. vllm is faster on many questions and needs anchorscope[vllm]."""
    max_new_tokens: Annotated[int, Field(ge=1, le=512)] = 24
    """An answer is cut here if it has no line end before."""
    batch_tokens: Annotated[int, Field(ge=1)] = 8192
    """Tokens per batch. The batch plan depends on lengths and this number alone, not on the machine."""
    file: str | None = None
    """With source: file, a JSONL, Parquet or CSV file with id or question, answer, and optionally label and context."""
    grader: Name = "alias"
    """How an answer is compared with the accepted ones: alias, plain, or one you registered (docs/grading.md)."""

    @model_validator(mode="after")
    def _consistent(self) -> AnswersSpec:
        if (self.source == "file") != (self.file is not None):
            raise ValueError("source: file and file: PATH go together")
        return self


class SpansSpec(Spec):
    """Which tokens are cut, and which are cut instead of them as controls."""

    exact_question: Literal["content", "dataset"] = "content"
    """content: the content words of the question. dataset: what the set itself marks (PopQA: subject and property)."""
    controls: list[Literal["control_question", "control_random"]] = ["control_question", "control_random"]
    """Control spans, each paired token by token with the exact question tokens."""


Condition = Literal[
    "clean", "knockout", "control_question", "control_random", "matched_question", "matched_random", "answer_only"
]


class TraceSpec(Spec):
    """Forward passes under each condition: what is cut, what is read, and of how many samples."""

    sites: Annotated[list[Literal["attn", "mlp", "resid"]], Field(min_length=1)] = ["mlp"]
    """Where activations are read: attn and mlp (the block's output), resid (the layer's)."""
    positions: Annotated[list[Literal["answer_last", "final", "prompt_last"]], Field(min_length=1)] = ["answer_last"]
    """Which token is read: the last exact answer token, the answer's last, or the prompt's last."""
    conditions: list[Condition] = list(get_args(Condition))
    """The passes. Each control cuts other tokens; matched_… cuts as many exact tokens for the same queries."""
    into: Literal["after", "answer"] = "after"
    """Which tokens lose sight of what is cut: all later ones, or those of the answer."""
    correct: Annotated[int, Field(ge=1)] = 1000
    """At most so many samples with a right answer, per model and set."""
    wrong: Annotated[int, Field(ge=1)] = 1000
    """At most so many samples with a wrong answer. Each keeps the probability with which it was drawn."""
    memory: Annotated[FiniteFloat, Field(gt=0)] = 1.0
    """Gigabytes that one batch may take beside the weights (docs/performance.md). A longer sample runs alone."""

    @model_validator(mode="after")
    def _consistent(self) -> TraceSpec:
        for name, values in (("sites", self.sites), ("positions", self.positions), ("conditions", self.conditions)):
            if len(set(values)) < len(values):
                raise ValueError(f"{name} names something twice")
        if self.conditions[:2] != ["clean", "knockout"]:
            raise ValueError("conditions begins with clean, knockout: everything is compared with them")
        for control in ("question", "random"):
            pair = {f"control_{control}", f"matched_{control}"} & set(self.conditions)
            if len(pair) == 1:
                raise ValueError(f"control_{control} and matched_{control} go together: they are compared")
        return self


class MapSpec(Spec):
    """The layer × layer map: cut in some layers, read in every layer from there on."""

    layers: Literal["single", "window"] = "window"
    """In which layers the cut holds: one, or `width` layers around one. Single layers often have others to stand in."""
    width: Annotated[int, Field(ge=1)] = 5
    """Layers in a window."""
    into: Literal["after", "answer"] = "after"
    """Which tokens lose sight of what is cut: all later ones, or those of the answer."""
    conditions: Annotated[
        list[Literal["knockout", "control_question", "control_random", "matched_question", "matched_random"]],
        Field(min_length=1),
    ] = ["knockout", "control_question"]
    """What is cut, each on a map of its own: the exact question tokens, and as a control others."""
    correct: Annotated[int, Field(ge=1)] = 300
    """At most so many of the traced samples with a right answer."""
    wrong: Annotated[int, Field(ge=1)] = 300
    """At most so many with a wrong one."""

    @model_validator(mode="after")
    def _consistent(self) -> MapSpec:
        if self.conditions[0] != "knockout" or len(set(self.conditions)) < len(self.conditions):
            raise ValueError("conditions begins with knockout, and names each once")
        return self


class ProbeSpec(Spec):
    """The linear probes that read correctness from activations, one per layer."""

    repeats: Annotated[int, Field(ge=1)] = 5
    """How often folds and halves are drawn anew."""
    folds: Annotated[int, Field(ge=2)] = 5
    """Every read-out is out of fold; questions with the same text or subject share a fold."""
    strengths: Annotated[list[Annotated[FiniteFloat, Field(gt=0)]], Field(min_length=1)] = [
        1e-4,
        3e-4,
        1e-3,
        3e-3,
        1e-2,
        3e-2,
        1e-1,
    ]
    """Regularisation strengths (C) to choose from: one for all layers, by inner log-loss."""
    resamples: Annotated[int, Field(ge=100)] = 1000
    """Bootstrap resamples, over questions and repeats, behind every interval."""


class Study(Spec):
    """Which models answer which questions, and how what they know is measured."""

    name: Name
    """Names the run's folder, runs/<name>."""
    description: str = ""
    """For people. May change while a run goes on."""
    models: Annotated[list[ModelSpec], Field(min_length=1)]
    """The models, one panel of the chart each, in this order."""
    datasets: Annotated[list[DatasetSpec], Field(min_length=1)]
    """The question sets, one colour of the chart each, in this order."""
    prompt: PromptSpec = PromptSpec()
    """How a question is put to a model."""
    answers: AnswersSpec = AnswersSpec()
    """Where the answers come from."""
    spans: SpansSpec = SpansSpec()
    """Which tokens are cut."""
    traces: TraceSpec = TraceSpec()
    """Passes under each condition, and what is read from them."""
    probes: ProbeSpec = ProbeSpec()
    """How correctness is read from activations."""
    map: MapSpec | None = None
    """A layer × layer map too: `map: {}` for one with these defaults."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seeds the sampling of questions and everything random after it."""
    shard_rows: Annotated[int, Field(ge=1)] = 1024
    """Rows per file of a table: what a stopped run does again, at most."""

    _base: Path = PrivateAttr(default_factory=Path)

    @model_validator(mode="after")
    def _controls_are_found(self) -> Study:
        for where, conditions in (("traces", self.traces.conditions), ("map", self.map.conditions if self.map else [])):
            for control in ("question", "random"):
                cut = {f"control_{control}", f"matched_{control}"} & set(conditions)
                if cut and f"control_{control}" not in self.spans.controls:
                    raise ValueError(f"{where}.conditions has {min(cut)}, and spans.controls no control_{control}")
        return self

    @model_validator(mode="after")
    def _unique_names(self) -> Study:
        for kind, names in (
            ("models", [model.name for model in self.models]),
            ("datasets", [dataset.name for dataset in self.datasets]),
        ):
            # folders on some file systems do not tell upper from lower case
            lower = [name.lower() for name in names]
            repeated = {name for name in names if lower.count(name.lower()) > 1}
            if repeated:
                raise ValueError(f"two {kind} are called '{min(repeated)}'; give one another name")
        return self

    def prompt_for(self, model: ModelSpec) -> PromptSpec:
        """The prompt a model is given: its own, or else the study's."""
        return model.prompt or self.prompt

    def record(self) -> dict[str, Any]:
        """The whole study with its defaults, as plain values."""
        return self.model_dump(mode="json")

    def identity(self) -> dict[str, Any]:
        """What must not change while a run goes on.

        The description may; so may the place of a data file, since a table records the file's hash, and the devices
        a model is put on.
        """
        record = self.record()
        del record["description"]
        for dataset in record["datasets"]:
            del dataset["path"]
        for model in record["models"]:
            del model["device"], model["device_map"]
        return record

    def fingerprint(self) -> str:
        """A hash of `identity`."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()

    @property
    def base(self) -> Path:
        """The folder relative paths start at: the study file's, or the current one."""
        return self._base

    def based_at(self, folder: Path) -> Study:
        """The same study, its relative paths starting at `folder`."""
        study = self.model_copy()
        study._base = folder
        return study

    def with_data(self, folder: Path) -> Study:
        """The same study, reading each set from `folder`/<set>.jsonl, .parquet or .csv instead of the hub."""
        return self.model_copy(update={"datasets": [dataset.found_in(folder) for dataset in self.datasets]})
