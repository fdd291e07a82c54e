"""The second stage: from the `questions` table to the `answers` table of one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from anchorscope.answers.generate import Generated, Generator
from anchorscope.answers.given import Given, GivenAnswers, Reader
from anchorscope.answers.record import ANSWERS, Answer
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompt, Prompter
from anchorscope.progress import Notice, nobody
from anchorscope.questions.record import QUESTIONS, Question
from anchorscope.store import Guard, Plan, Sharded, Store, Table
from anchorscope.store.table import Aside
from anchorscope.study import Study

IsRight = Callable[[Question, Answer], bool]
"""Whether an answer is taken for right, for an early look."""

ENOUGH = 300  # right answers per model and dataset that probes want
_UNANSWERED = Given("", None, None)  # stands for a question the file does not answer


class Answerer:
    """Answers questions for one model: generated here or by vLLM, or read from a file.

    What generates is made on first need, and once: a vLLM engine takes the whole GPU.
    """

    def __init__(self, model: Model, study: Study) -> None:
        self.model, self.spec = model, study.answers
        self.prompter = Prompter(model.tokenizer, study.prompt_for(model.spec), model.wants_bos)
        file = study.answers.file
        self.given = GivenAnswers(study.base / file, len(study.datasets)) if file else None

    def __call__(self, rows: Sequence[Question]) -> list[Answer]:
        """Answer each question."""
        return self._generated(rows) if self.given is None else self._read(rows, self.given)

    def _generated(self, rows: Sequence[Question]) -> list[Answer]:
        prompts = self.prompter.many([(row.question, row.context) for row in rows])
        made = self.generate([prompt.ids for prompt in prompts])
        texts = [self.prompter.tokenizer.decode(each.ids, skip_special_tokens=True).strip() for each in made]
        return [self._record(*each, None) for each in zip(rows, prompts, made, texts, strict=True)]

    def unanswered(self, row: Question) -> Answer:
        """The row of a question on which the model fails: dropped and counted later."""
        row = self.given.with_context(row) if self.given else row
        (prompt,) = self.prompter.many([(row.question, row.context)])
        return self._record(row, prompt, Generated([], [], False), "", _UNANSWERED)

    def _read(self, rows: Sequence[Question], given: GivenAnswers) -> list[Answer]:
        """Answers of a file; a question it does not answer gets an empty one, which is dropped and counted later."""
        rows = [given.with_context(row) for row in rows]
        answers = [given.of(row) or _UNANSWERED for row in rows]
        prompts = self.prompter.many([(row.question, row.context) for row in rows])
        read = self._reader(prompts, [each.answer for each in answers])
        return [
            self._record(row, prompt, tokens, each.answer, each)
            for row, prompt, tokens, each in zip(rows, prompts, read, answers, strict=True)
        ]

    def _record(self, row: Question, prompt: Prompt, made: Generated, text: str, given: Given | None) -> Answer:
        return Answer(
            id=row.id,
            context=row.context,
            prompt_ids=prompt.ids[len(self.prompter.shared_ids) :],
            answer_ids=made.ids,
            logprobs=made.logprobs,
            answer=text,
            ended=made.ended,
            answered=given is not _UNANSWERED,
            label=given.label if given else None,
        )

    @cached_property
    def generate(self) -> Callable[[Sequence[list[int]]], list[Generated]]:
        """What generates: transformers or vLLM."""
        if self.spec.backend == "vllm":
            from anchorscope.answers.vllm import VllmGenerator

            return VllmGenerator(self.model, self.spec.max_new_tokens)
        return self._generator()

    @cached_property
    def _reader(self) -> Reader:
        """What gives each token of an answer its log-probability."""
        return Reader(self._generator(), self.prompter)

    def _generator(self) -> Generator:
        return Generator(self.model, self.prompter.shared_ids, self.spec.max_new_tokens, self.spec.batch_tokens)

    def close(self) -> None:
        """Let go of what generates; what it held on a GPU is free afterwards."""
        made = self.__dict__.pop("generate", None)
        self.__dict__.pop("_reader", None)
        if hasattr(made, "close"):
            made.close()


def answers_stage(
    answerer: Answerer, dataset: str, store: Store, right: IsRight | None = None, notice: Notice = nobody
) -> Sharded[Answer]:
    """The `answers` table of one model and dataset. A question on which the model fails is set aside, unanswered.

    After the first shard it says if right answers will be too few, where `right` says which are.
    """
    model = answerer.model
    questions = store.questions(dataset).table(QUESTIONS)
    table = _begin(answerer, dataset, store, questions.plan)
    looked_at: list[int] = []
    guard: Guard[Question] = Guard(table, lambda question: question.id)
    aside: dict[int, list[Aside]] = {}

    def answer(shard: int) -> list[list[Answer]]:
        asked = questions.read(shard)
        made, aside[shard] = guard(shard, asked, answerer)
        answered = {row.id: row for row in made}
        rows = [answered.get(row.id) or answerer.unanswered(row) for row in asked]
        if right is not None and not looked_at:
            looked_at.append(shard)
            warning = too_few(sum(map(right, asked, rows)), len(rows), table.plan.rows)
            if warning:
                notice(f"{model.name}, {dataset}: {warning}")
        return [rows]

    return Sharded(f"{model.name}, {dataset}: answering", (table,), answer, aside=aside)


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


def _begin(answerer: Answerer, dataset: str, store: Store, plan: Plan) -> Table[Answer]:
    """Begin the table with all it is a function of."""
    spec = store.study.answers.model_dump(mode="json")
    if answerer.given is not None:
        spec["file"] = answerer.given.sha256
    asked = next((m.dtype for m in store.study.models if m.name == answerer.model.name), answerer.model.spec.dtype)
    inputs = {
        "questions": store.questions(dataset).origin(QUESTIONS),
        "model": answerer.model.fingerprint,
        "prompt": answerer.prompter.describe(),
        "answers": spec,
    }
    facts = {
        "batch_plan": "rows of similar length, rows × (longest + max_new_tokens) ≤ batch_tokens, within a shard",
        "dtype": f"asked for {asked}, taken {answerer.model.fingerprint['dtype']}",
    }
    return store.results(answerer.model.name, dataset).begin(ANSWERS, plan, inputs, facts)
