"""The settings for models, question sets, prompts, answers and grades."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, FiniteFloat, StringConstraints, field_validator, model_validator

from anchorscope.errors import QuestionsError
from anchorscope.study.terms import Name, Place, Spec, Text

RESERVED_MODEL_NAMES = frozenset({"questions", "all", "figures", "report", "study.yaml"})  # beside a run's models

# the arguments of transformers' apply_chat_template itself; a study gives only those that the template reads
OF_TRANSFORMERS = frozenset(
    {
        "conversation", "messages", "tools", "documents", "chat_template", "add_generation_prompt",
        "continue_final_message", "tokenize", "sanitize_control_tokens", "padding", "truncation", "max_length",
        "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs",
    }
)  # fmt: skip


class Example(Spec):
    """One question of a few-shot prompt, with its answer."""

    question: Text
    """Text of the question, as in a question set."""
    answer: Text
    """Short answer to the question."""


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
    """The prompt with which a question is asked."""

    style: Literal["completion", "chat"] = "completion"
    """Style of the prompt: completion (plain text, for base models) or chat (the model's own chat template, for
    instruct models)."""
    shots: Annotated[int, Field(ge=0)] = 4
    """Number of `examples` before the question. Every question gets the same ones."""
    examples: list[Example] = DEFAULT_EXAMPLES
    """Questions with answers, from which the shots are taken in this order. A dataset's question that equals an example
    is left out."""
    question: str = "Q: {question}"
    """Line with the question, in which {question} stands for its text."""
    cue: Text = "A:"
    """Text before the answer, on a line of its own."""
    system: str = ""
    """System turn (chat style only)."""
    chat_kwargs: dict[str, bool | int | FiniteFloat | str] = {}
    """Arguments for the chat template, such as enable_thinking: false (chat style only)."""
    date: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")] = "2026-01-01"
    """Fixed date for chat templates that write the current date into the prompt, so that a run does not depend on the
    day it was made (chat style only)."""

    @field_validator("question")
    @classmethod
    def _one_placeholder(cls, value: str) -> str:
        if value.count("{question}") != 1:
            raise ValueError("must contain {question} exactly once")
        return value

    @field_validator("chat_kwargs")
    @classmethod
    def _only_the_templates(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name in OF_TRANSFORMERS:
                raise ValueError(
                    f"{name} is not an argument of the chat template but of transformers, and anchorscope sets it; "
                    "remove it"
                )
        return value

    @field_validator("date")
    @classmethod
    def _is_a_day(cls, value: str) -> str:
        try:
            date.fromisoformat(value)
        except ValueError:
            raise ValueError("not a date of the calendar; write it as 2026-01-31") from None
        return value

    @model_validator(mode="after")
    def _consistent(self) -> PromptSpec:
        if self.shots > len(self.examples):
            raise ValueError(f"shots is {self.shots}, but there are only {len(self.examples)} examples")
        if self.style == "completion" and (self.system or self.chat_kwargs):
            raise ValueError("system and chat_kwargs belong to style: chat")
        return self


class Sites(Spec):
    """Module paths, as in PyTorch, of the layers, attention blocks and MLPs of a model type."""

    layers: Text
    """Path from the causal LM to the list of decoder layers, for example model.layers."""
    attn: Text
    """Path from a layer to its attention block, for example self_attn."""
    mlp: Text
    """Path from a layer to its MLP, for example mlp."""


class ModelSpec(Spec):
    """A causal language model, and the settings to load it."""

    id: Place
    """Hugging Face id (org/model), local folder, or .gguf file."""
    name: Name = ""
    """Name of the model in figures and folders. Default: the last part of `id`."""
    revision: str | None = None
    """Branch, tag or commit on the hub. Default: main. The run records the commit."""
    gguf: str | None = None
    """Name of the .gguf file to use, if `id` is a hub repository or a folder."""
    dtype: Literal["auto", "bfloat16", "float32", "float64"] = "auto"
    """Data type of the weights. auto is bfloat16 where this machine multiplies it at least as fast as float32, else
    float32. It is chosen when the model is first loaded, and a run that is resumed elsewhere keeps it. float16 is not
    offered, because the residuals of some models overflow it."""
    device: Annotated[str, StringConstraints(pattern=r"^[a-z]\w*(:\d+)?$")] = "auto"
    """Device: cpu, cuda, cuda:1, mps, or any other that torch knows. auto uses a GPU if there is one. It cannot be
    combined with device_map."""
    device_map: Literal["auto", "balanced", "balanced_low_0", "sequential"] | dict[str, int | str] | None = None
    """Distribution of the layers over devices: auto or balanced (over all GPUs), or a mapping from module to device."""
    attention: Literal["auto", "sdpa", "eager"] = "auto"
    """Attention implementation of transformers. Both accept the mask of the knockout; sdpa is faster and more exact.
    auto is sdpa where the model type has it, else eager (Gemma 2)."""
    sites: Sites | None = None
    """Module paths of a model type that `anchorscope list models` does not list. `anchorscope doctor` checks them."""
    prompt: PromptSpec | None = None
    """Prompt for this model alone. Default: the study's prompt."""

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
            raise ValueError(
                "float16 is not offered, because residuals of some models (Gemma) overflow it; use bfloat16"
            )
        return value

    @model_validator(mode="after")
    def _consistent(self) -> ModelSpec:
        if "://" in self.id:
            raise ValueError(f"id should be owner/name without the address of the hub, not {self.id}")
        if self.name.lower() in RESERVED_MODEL_NAMES:
            raise ValueError(f"'{self.name}' is the name of a folder in every run; give the model another name")
        if self.device_map is not None and self.device != "auto":
            raise ValueError("give device or device_map, not both")
        return self


class DatasetSpec(Spec):
    """A question set, and the number of questions drawn from it."""

    set: Place
    """Name of a question set (`anchorscope list sets`), or path of your own YAML definition
    (docs/howto/datasets.md)."""
    name: Name = ""
    """Name of the dataset in figures and folders. Default: the set's name, or the file name of the definition."""
    path: Place | None = None
    """Local JSONL, Parquet or CSV file to read instead of the set's own source, relative to the study's folder."""
    columns: Literal["plain", "source"] = "plain"
    """Names of the columns in `path`: plain (id, question, answers, …), or source (as in the set's own source)."""
    sample: Annotated[int, Field(ge=1)] | None = None
    """Number of questions to draw, by seed and question id. Default: all. A larger sample contains the smaller one."""
    crossed: Annotated[int, Field(ge=1)] | None = Field(None, exclude_if=lambda value: value is None)
    """Number of pairs of questions that are asked with both answers of the pair, so that each answer is right once and
    wrong once (docs/evidence.md). Nothing is generated for this dataset. Default: the model answers by itself."""

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
            raise ValueError(
                "columns: source says how to read `path`, but there is no path; add one, or remove columns"
            )
        return self

    def found_in(self, folder: Path) -> DatasetSpec:
        """The same dataset, read from `folder`/<set>.jsonl, .parquet or .csv unless it has a file of its own."""
        if self.path is not None or self.set.endswith((".yaml", ".yml")):
            return self
        for ending in (".jsonl", ".parquet", ".csv"):
            file = folder / f"{self.set}{ending}"
            if file.is_file():
                return self.model_copy(update={"path": str(file.resolve())})
        raise QuestionsError(
            f"{folder} holds no {self.set}.jsonl, {self.set}.parquet or {self.set}.csv",
            "Check the folder given with --data, or put the file there.",
        )


class AnswersSpec(Spec):
    """The source of the answers."""

    source: Literal["generate", "file"] = "generate"
    """Source of the answers: generate (the first line of greedy decoding) or file (answers that you already have)."""
    backend: Literal["transformers", "vllm"] = "transformers"
    """Library that generates the answers. vllm is faster on many questions and needs anchorscope[vllm]."""
    max_new_tokens: Annotated[int, Field(ge=1, le=512)] = 24
    """Maximum number of tokens per answer. A longer first line is cut there."""
    batch_tokens: Annotated[int, Field(ge=1)] = 8192
    """Number of tokens per batch. The batch plan depends on it and on the lengths alone, not on the machine."""
    file: Place | None = None
    """JSONL, Parquet or CSV file of answers (source: file only). Its columns are id or question, answer, and optionally
    label and context."""

    @model_validator(mode="after")
    def _consistent(self) -> AnswersSpec:
        if (self.source == "file") != (self.file is not None):
            raise ValueError("source: file and file: PATH belong together; give both, or neither")
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
    """A language model that grades answers, behind an OpenAI-compatible endpoint."""

    REMOVED: ClassVar = {"price": ((None,), "it was removed in version 0.3.0; --dry-run counts tokens. Remove it")}

    base_url: Annotated[Place, StringConstraints(pattern=r"^https?://[^\s@]+$")]
    """Base URL of the endpoint, as for OpenAI's clients, for example http://localhost:8000/v1."""
    model: Text
    """Name of the model at the endpoint."""
    key: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")] | None = None
    """Name of the environment variable that holds the key, which ends in _API_KEY or _TOKEN. The key itself is never
    written. Default: no key."""
    prompt: Text = JUDGE_PROMPT
    """Prompt for the judge, with {question}, {accepted} and {answer}. The reply must begin with RIGHT, WRONG or
    UNCLEAR."""
    at_once: Annotated[int, Field(ge=1, le=256)] = 8
    """Maximum number of requests at the same time."""
    timeout: Annotated[FiniteFloat, Field(gt=0)] = 60.0
    """Number of seconds to wait for a reply."""
    tries: Annotated[int, Field(ge=1)] = 6
    """Number of times that a request is sent before the run stops. Grades given until then are kept."""

    @model_validator(mode="after")
    def _consistent(self) -> JudgeSpec:
        for field in ("question", "accepted", "answer"):
            if f"{{{field}}}" not in self.prompt:
                raise ValueError(f"prompt does not contain {{{field}}}, the place of the {field}; add it")
        return self


class GradesSpec(Spec):
    """The way in which answers are graded as right, wrong or cannot tell."""

    grader: Name = "alias"
    """Name of the grader: alias, plain, judge, or one that you registered (docs/answers.md)."""
    judge: JudgeSpec | None = None
    """Model that grades (grader: judge only), given by base_url, model and key."""

    @model_validator(mode="after")
    def _consistent(self) -> GradesSpec:
        if (self.grader == "judge") != (self.judge is not None):
            raise ValueError("grader: judge and judge: {base_url: …, model: …} belong together; give both, or neither")
        return self

    def identity(self) -> dict[str, Any]:
        """The settings that grades depend on. A judge's address and number of tries are left out."""
        record = self.model_dump(mode="json")
        if self.judge is not None:
            record["judge"] = {"model": self.judge.model, "prompt": self.judge.prompt}
        return record
