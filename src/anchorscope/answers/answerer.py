"""What answers questions for one model: it generates here or by vLLM, or reads answers from a file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from anchorscope.answers.generate import Generated, Generator
from anchorscope.answers.given import Given, GivenAnswers
from anchorscope.answers.record import Answer
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompt, Prompter, answer_ids
from anchorscope.progress import Advance, uncounted
from anchorscope.questions.record import Question
from anchorscope.study import Study

_UNANSWERED = Given("", None, None)  # stands for a question the file does not answer


class Generates(Protocol):
    """What answers prompts: a `Generator` or a `VllmGenerator`."""

    def __call__(self, prompts: Sequence[Sequence[int]], *, advance: Advance = uncounted) -> list[Generated]: ...


class Answerer:
    """Answers questions for one model: generated here or by vLLM, or read from a file.

    What generates is made on first need, and once: a vLLM engine takes the whole GPU.
    """

    def __init__(self, model: Model, study: Study) -> None:
        self.model, self.spec = model, study.answers
        self.prompter = Prompter(model.tokenizer, study.prompt_for(model.spec), model.wants_bos)
        file = study.answers.file
        self.given = GivenAnswers(study.base / file, len(study.datasets)) if file else None

    def __call__(self, rows: Sequence[Question], advance: Advance = uncounted) -> list[Answer]:
        if self.given is None and all(row.given is None for row in rows):
            return self._generated(rows, advance)
        return self._read(rows, advance)

    def _generated(self, rows: Sequence[Question], advance: Advance) -> list[Answer]:
        prompts = self.prompter.many([(row.question, row.context) for row in rows])
        generated = self.generate([prompt.ids for prompt in prompts], advance=advance)
        texts = [self.prompter.tokenizer.decode(answer.ids, skip_special_tokens=True).strip() for answer in generated]
        return [self._record(*parts, None) for parts in zip(rows, prompts, generated, texts, strict=True)]

    def unanswered(self, row: Question) -> Answer:
        """The row of a question on which the model fails: dropped and counted later."""
        row = self._with_context(row)
        (prompt,) = self.prompter.many([(row.question, row.context)])
        return self._record(row, prompt, Generated([], [], False), "", _UNANSWERED)

    def _read(self, rows: Sequence[Question], advance: Advance) -> list[Answer]:
        """Given answers; a question without one gets an empty one, which is dropped and counted later."""
        rows = [self._with_context(row) for row in rows]
        answers = [self._given_to(row) or _UNANSWERED for row in rows]
        prompts = self.prompter.many([(row.question, row.context) for row in rows])
        read = self._reader(prompts, [answer.answer for answer in answers], advance)
        return [
            self._record(row, prompt, tokens, answer.answer, answer)
            for row, prompt, tokens, answer in zip(rows, prompts, read, answers, strict=True)
        ]

    def _given_to(self, row: Question) -> Given | None:
        """The answer that the row itself gives, or else the file."""
        if row.given is not None:
            return Given(*row.given, None)
        return self.given.of(row) if self.given else None

    def _with_context(self, row: Question) -> Question:
        return self.given.with_context(row) if self.given else row

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
    def generate(self) -> Generates:
        """What generates: transformers or vLLM."""
        if self.spec.backend == "vllm":
            from anchorscope.answers.vllm import VllmGenerator

            return VllmGenerator(self.model, self.spec.max_new_tokens)
        return self._generator()

    @cached_property
    def _reader(self) -> GivenReader:
        """What gives each token of an answer its log-probability."""
        return GivenReader(self._generator(), self.prompter)

    def _generator(self) -> Generator:
        return Generator(self.model, self.prompter.shared_ids, self.spec.max_new_tokens, self.spec.batch_tokens)

    def close(self) -> None:
        """Let go of what generates; what it held on a GPU is free afterwards."""
        generator = self.__dict__.pop("generate", None)
        self.__dict__.pop("_reader", None)
        if hasattr(generator, "close"):
            generator.close()


class GivenReader:
    """Makes a model read given answers."""

    def __init__(self, generator: Generator, prompter: Prompter) -> None:
        self.generator, self.prompter = generator, prompter

    def __call__(
        self, prompts: Sequence[Prompt], answers: Sequence[str], advance: Advance = uncounted
    ) -> list[Generated]:
        """Token ids and log-probabilities of each answer after its prompt."""
        tokens = [answer_ids(self.prompter, prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
        scored = self.generator.score([prompt.ids for prompt in prompts], tokens, advance=advance)
        return [Generated(ids, values, ended=True) for ids, values in zip(tokens, scored, strict=True)]
