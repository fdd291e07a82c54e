"""The second stage: from the `questions` table to the `answers` table of one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from anchorscope.answers.generate import Generated, Generator
from anchorscope.answers.given import Given, GivenAnswers, Reader
from anchorscope.answers.grading import grader
from anchorscope.models.load import Model
from anchorscope.progress import Notice, Progress, nobody, silent
from anchorscope.prompts import Prompt, Prompter
from anchorscope.questions.question import Question
from anchorscope.questions.stage import TABLE as QUESTIONS
from anchorscope.store import Store
from anchorscope.study import Study
from anchorscope.table import Plan, Table

TABLE = "answers"
ENOUGH = 300  # right answers per model and dataset that probes want
_UNANSWERED = Given("", None, None)  # stands for a question the file does not answer


@dataclass(frozen=True, slots=True)
class Answer:
    """One row of the `answers` table: what the model said, token by token, and whether it is right."""

    id: str = field(metadata={"doc": "the question's id"})
    context: str | None = field(metadata={"doc": "the passage that stood in the prompt"})
    prompt_ids: list[int] = field(metadata={"doc": "prompt tokens after the shared prefix, which the manifest has"})
    answer_ids: list[int] = field(metadata={"doc": "answer tokens: greedy, up to the end of the first line"})
    logprobs: list[float] = field(metadata={"doc": "log-probability (natural) of each answer token"})
    answer: str = field(metadata={"doc": "the answer's text, without white space at its ends"})
    ended: bool = field(metadata={"doc": "whether it ended by itself, not by the limit on its length"})
    correct: bool | None = field(metadata={"doc": "the grade: an accepted answer was found in it; null if unanswered"})
    alias: str | None = field(metadata={"doc": "the accepted answer that was found"})
    alias_start: int | None = field(metadata={"doc": "where in `answer` it was found: first character"})
    alias_end: int | None = field(metadata={"doc": "where in `answer` it was found: one past the last character"})


class Answerer:
    """Answers for one model. What generates is made on first need, and once: a vLLM engine takes the whole GPU."""

    def __init__(self, model: Model, study: Study) -> None:
        self.model, self.spec = model, study.answers
        self.prompter = Prompter(model.tokenizer, study.prompt_for(model.spec), model.wants_bos)
        file = study.answers.file
        self.given = GivenAnswers(study.base / file, len(study.datasets)) if file else None

    @cached_property
    def answer(self) -> Callable[[list[Question]], list[Answer]]:
        """From questions to answers."""
        return _answerer(self)

    @cached_property
    def generate(self) -> Callable[[Sequence[list[int]]], list[Generated]]:
        """What generates: transformers or vLLM."""
        if self.spec.backend == "vllm":
            from anchorscope.answers.vllm import VllmGenerator

            return VllmGenerator(self.model, self.spec.max_new_tokens)
        return Generator(self.model, self.prompter.shared_ids, self.spec.max_new_tokens, self.spec.batch_tokens)

    def close(self) -> None:
        """Let go of what generates; what it held on a GPU is free afterwards."""
        made = self.__dict__.pop("generate", None)
        self.__dict__.pop("answer", None)
        if hasattr(made, "close"):
            made.close()


def write_answers(
    answerer: Answerer, dataset: str, store: Store, progress: Progress = silent, notice: Notice = nobody
) -> Table[Answer]:
    """Write the `answers` table of one model and dataset, or what is missing of it."""
    model = answerer.model
    questions = store.questions(dataset).table(QUESTIONS, Question)
    table = _begin(model, dataset, store, answerer.prompter, questions.plan, answerer.given)
    missing = table.missing()
    answered = correct = 0
    if not missing:
        return table
    with progress(f"{model.name}, {dataset}: answering", table.plan.rows) as advance:
        for shard in range(table.plan.shards):
            if shard in missing:
                rows = answerer.answer(questions.read(shard))
                table.write(shard, rows)
                # what was made from what stood here before: this shard's spans, and traces drawn from all shards
                (table.folder.parent / "spans" / table.path(shard).name).unlink(missing_ok=True)
                (table.folder.parent / "traces" / "part-000000.parquet").unlink(missing_ok=True)
                answered, correct = answered + len(rows), correct + sum(row.correct is True for row in rows)
                if shard == missing[0] and (warning := too_few(correct, answered, table.plan.rows)):
                    notice(f"{model.name}, {dataset}: {warning}")
            advance(len(table.plan.rows_of(shard)))
    return table


def too_few(correct: int, answered: int, total: int, wanted: int = ENOUGH) -> str | None:
    """Say early when a sample will not give probes enough right answers, and how large it would have to be."""
    expected = correct / answered * total
    if expected >= wanted:
        return None
    rate = max(correct, 1) / answered
    return (
        f"{100 * correct / answered:.1f} % right so far, so {total:,} questions will give about {expected:,.0f} right "
        f"answers; probes want {wanted}. Sample about {wanted / rate:,.0f} questions."
    )


def _answerer(answerer: Answerer) -> Callable[[list[Question]], list[Answer]]:
    """From questions to answers: generated here, by vLLM, or read from a file."""
    model, prompter, spec, given = answerer.model, answerer.prompter, answerer.spec, answerer.given
    grade = grader(spec.grader)
    shared = len(prompter.shared_ids)

    def record(row: Question, prompt: Prompt, made: Generated, text: str, given: Given | None) -> Answer:
        mark = grade(text, row.answers, row.question)
        correct: bool | None = mark.correct if given is None or given.label is None else given.label
        if given is _UNANSWERED:
            correct = None
        alias = (mark.alias, mark.start, mark.end) if correct else (None, None, None)
        return Answer(
            row.id, row.context, prompt.ids[shared:], made.ids, made.logprobs, text, made.ended, correct, *alias
        )

    if given is not None:
        reader = Reader(Generator(model, prompter.shared_ids, spec.max_new_tokens, spec.batch_tokens), prompter)
        return lambda rows: _read(rows, given, prompter, reader, record)
    generate = answerer.generate

    def answer(rows: list[Question]) -> list[Answer]:
        prompts = prompter.many([(row.question, row.context) for row in rows])
        made = generate([prompt.ids for prompt in prompts])
        texts = [prompter.tokenizer.decode(each.ids, skip_special_tokens=True).strip() for each in made]
        return [record(*each, None) for each in zip(rows, prompts, made, texts, strict=True)]

    return answer


def _read(
    rows: list[Question],
    given: GivenAnswers,
    prompter: Prompter,
    reader: Reader,
    record: Callable[[Question, Prompt, Generated, str, Given | None], Answer],
) -> list[Answer]:
    """Answers of a file; a question it does not answer gets an empty one, which is dropped and counted later."""
    rows = [given.with_context(row) for row in rows]
    found = [given.of(row) or _UNANSWERED for row in rows]
    prompts = prompter.many([(row.question, row.context) for row in rows])
    made = reader(prompts, [each.answer for each in found])
    return [
        record(row, prompt, tokens, each.answer, each)
        for row, prompt, tokens, each in zip(rows, prompts, made, found, strict=True)
    ]


def _begin(
    model: Model, dataset: str, store: Store, prompter: Prompter, plan: Plan, given: GivenAnswers | None
) -> Table[Answer]:
    """Begin the table with all it is a function of."""
    spec = store.study.answers.model_dump(mode="json")
    if given is not None:
        spec["file"] = given.sha256
    inputs = {
        "questions": store.questions(dataset).origin(QUESTIONS),
        "model": model.fingerprint,
        "prompt": prompter.describe(),
        "answers": spec,
    }
    facts = {"batch_plan": "rows of similar length, rows × (longest + max_new_tokens) ≤ batch_tokens, within a shard"}
    return store.results(model.name, dataset).begin(TABLE, Answer, plan, inputs, facts)
