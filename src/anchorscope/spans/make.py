"""From a question and an answer to a sample: its tokens, and which of them are what. Every sample is made here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anchorscope.answers.record import Answer
from anchorscope.grades.record import Graded
from anchorscope.models.prompts import answer_ids
from anchorscope.spans.find import find_spans
from anchorscope.spans.marks import ByHand
from anchorscope.spans.samples import Sample
from anchorscope.study import SpansSpec, Study

if TYPE_CHECKING:
    from anchorscope.models.prompts import Prompt, Prompter
    from anchorscope.questions.record import Question
    from anchorscope.spans.record import Spans


@dataclass(frozen=True)
class SampleMaker:
    """Makes samples of questions that are put to one model in one way."""

    prompter: Prompter
    spec: SpansSpec = SpansSpec()  # noqa: RUF009 — a value that does not change
    """The rule for exact question tokens, and which controls are paired with them."""
    seed: int = 0
    """The seed that draws among controls that are equally near."""

    @classmethod
    def of(cls, prompter: Prompter, study: Study) -> SampleMaker:
        return cls(prompter, study.spans, study.seed)

    def spans(
        self,
        question: Question,
        prompt: Prompt,
        ids: Sequence[int],
        text: str,
        by_hand: ByHand = ByHand(),  # noqa: B008 — a value
    ) -> Spans:
        """Which tokens of a prompt and an answer are what. `ids` are the answer's tokens, `text` is what they say."""
        spec, tokenizer = self.spec, self.prompter.tokenizer
        rules = (spec.exact_question, spec.controls, self.seed, by_hand)
        return find_spans(prompt, ids, text, question, tokenizer, *rules)

    def __call__(
        self,
        question: Question,
        text: str,
        ids: Sequence[int] | None = None,
        logprobs: Sequence[float] = (),
        prompt: Prompt | None = None,
        grade: Graded | None = None,
        ended: bool = True,
    ) -> Sample:
        """A sample; where its spans cannot be found, `spans.dropped` says why.

        `ids` are the answer's tokens, found where they are not given; so is the prompt, with the question's context.
        """
        prompt = prompt or self.prompter(question.question, question.context)
        tokens = list(answer_ids(self.prompter, prompt, text) if ids is None else ids)
        answer = Answer(
            id=question.id,
            context=question.context,
            prompt_ids=prompt.ids[len(self.prompter.shared_ids) :],
            answer_ids=tokens,
            logprobs=list(logprobs),
            answer=text,
            ended=ended,
            answered=True,
            label=None,
        )
        spans = self.spans(question, prompt, tokens, text)
        return Sample(question, answer, grade or Graded(question.id), spans)
