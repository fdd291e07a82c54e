"""Who is asked what, and how: models, question sets, prompts, and where the answers come from."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, StringConstraints, field_validator, model_validator

from anchorscope.errors import QuestionsError
from anchorscope.study.terms import Name, Spec, Text

RESERVED_MODEL_NAMES = frozenset({"questions", "figures", "report", "study.yaml"})  # beside a run's models


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
    date: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")] = "2026-01-01"
    """The day that a chat template is told it is, where it asks: some put it into the prompt, and a run would depend on
    the day it was made (chat style only)."""

    @field_validator("question")
    @classmethod
    def _one_placeholder(cls, value: str) -> str:
        if value.count("{question}") != 1:
            raise ValueError("must contain {question} exactly once")
        return value

    @field_validator("date")
    @classmethod
    def _is_a_day(cls, value: str) -> str:
        try:
            date.fromisoformat(value)
        except ValueError:
            raise ValueError("there is no such day; write it as 2026-01-31") from None
        return value

    @model_validator(mode="after")
    def _consistent(self) -> PromptSpec:
        if self.shots > len(self.examples):
            raise ValueError(f"shots is {self.shots}, but there are only {len(self.examples)} examples")
        if self.style == "completion" and (self.system or self.chat_kwargs):
            raise ValueError("system and chat_kwargs belong to style: chat")
        return self


class Sites(Spec):
    """Where a family of models has its attention, its MLPs and its layers: paths of modules, as in PyTorch."""

    layers: Text
    """The list of decoder layers, from the causal LM down: model.layers."""
    attn: Text
    """The attention block, from a layer down: self_attn."""
    mlp: Text
    """The MLP, from a layer down: mlp."""


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
    """auto: bfloat16 where this machine multiplies it at least as fast as float32, else float32; tried when the model
    is loaded, and kept by a run that goes on elsewhere. Never float16: the residuals of some models overflow it."""
    device: Annotated[str, StringConstraints(pattern=r"^[a-z]\w*(:\d+)?$")] = "auto"
    """cpu, cuda, cuda:1, mps, or any other device that torch knows; auto takes a GPU where there is one. Not together
    with device_map."""
    device_map: Literal["auto", "balanced", "balanced_low_0", "sequential"] | dict[str, int | str] | None = None
    """auto or balanced shards the layers over all GPUs; or a mapping from module to device."""
    attention: Literal["auto", "sdpa", "eager"] = "auto"
    """The attention code in transformers. Both take the knockout's mask; sdpa is faster and more exact. auto: sdpa
    where the family has it, else eager (Gemma 2)."""
    sites: Sites | None = None
    """Where the sites of a family are that `anchorscope models` does not list. anchorscope doctor checks it."""
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
    """popqa, triviaqa, hotpotqa, nq or squad; or the path of a YAML definition of your own (docs/questions.md)."""
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

    @model_validator(mode="after")
    def _consistent(self) -> AnswersSpec:
        if (self.source == "file") != (self.file is not None):
            raise ValueError("source: file and file: PATH go together")
        return self


JUDGE_PROMPT = """\
You grade a short answer to a question. You are given the question, answers known to be right, and the answer to grade.
The answer is right if it means the same as one of the known answers, in whatever words; it may say more, as long as
nothing in it contradicts them. It is wrong if it names something else, or only repeats the question.

Question: {question}
Known to be right: {accepted}
Answer to grade: {answer}

Reply with one word: RIGHT, WRONG, or UNCLEAR if it cannot be told."""


class JudgeSpec(Spec):
    """A language model that grades, behind an OpenAI-compatible endpoint."""

    base_url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s@]+$")]
    """Where it is, as OpenAI's clients want it: http://localhost:8000/v1."""
    model: Text
    """What the endpoint calls it."""
    key: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")] | None = None
    """The environment variable that holds the key; the key itself is never written. Default: no key."""
    prompt: Text = JUDGE_PROMPT
    """What it is asked, with {question}, {accepted} and {answer}; it replies with RIGHT, WRONG or UNCLEAR first."""
    at_once: Annotated[int, Field(ge=1, le=256)] = 8
    """Requests under way at a time."""
    timeout: Annotated[FiniteFloat, Field(gt=0)] = 60.0
    """Seconds to wait for a reply."""
    tries: Annotated[int, Field(ge=1)] = 6
    """How often a request is made before the run stops; what was judged by then is kept."""
    price: Annotated[list[Annotated[FiniteFloat, Field(ge=0)]], Field(min_length=2, max_length=2)] | None = None
    """What a million tokens cost, in and out, for the estimate of --dry-run: [0.15, 0.60]."""

    @model_validator(mode="after")
    def _consistent(self) -> JudgeSpec:
        for field in ("question", "accepted", "answer"):
            if f"{{{field}}}" not in self.prompt:
                raise ValueError(f"prompt does not say where the {field} goes: {{{field}}}")
        return self


class GradesSpec(Spec):
    """How answers are graded: right, wrong, or cannot be told."""

    grader: Name = "alias"
    """alias, plain, judge, or one you registered (docs/grading.md)."""
    judge: JudgeSpec | None = None
    """With grader: judge, the model that judges: base_url, model, key."""

    @model_validator(mode="after")
    def _consistent(self) -> GradesSpec:
        if (self.grader == "judge") != (self.judge is not None):
            raise ValueError("grader: judge and judge: {base_url: …, model: …} go together")
        return self

    def identity(self) -> dict[str, Any]:
        """What grades are a function of: not where a judge is reached, how hard it is tried, or its price."""
        record = self.model_dump(mode="json")
        if self.judge is not None:
            record["judge"] = {"model": self.judge.model, "prompt": self.judge.prompt}
        return record
