"""A text of one's own as a model reads it: plain, or a question and an answer as a study would put them.

Of a question and an answer the parts have names (exact_question, control_question …), found by the rules of a study or
marked by hand. A plain text has its tokens and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anchorscope.errors import ModelError
from anchorscope.models.prompts import Prompter, answer_ids
from anchorscope.questions.record import Question
from anchorscope.spans.alignment import Range, align, decode
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.marks import ByHand, Marks, marked_tokens
from anchorscope.spans.record import Spans
from anchorscope.study import PromptSpec, SpansSpec
from anchorscope.study.terms import ExactRule

if TYPE_CHECKING:
    from anchorscope.models.load import Model


@dataclass(frozen=True)
class Asked:
    """A question and an answer, to be put to a model as a study does."""

    question: str
    """As it would stand in a set."""
    answer: str
    """What the model is made to say."""
    prompt: PromptSpec = PromptSpec()  # noqa: RUF009 — a value that does not change
    """How it is put: few-shot examples before it, or a chat template."""
    context: str | None = None
    """A passage that stands before the question."""
    exact_question: Marks | None = None
    """The exact question tokens by hand: texts of the question, or places. None: its content words."""
    exact_answer: Marks | None = None
    """The exact answer tokens by hand: a text of the answer, or places. None: its entity."""
    rule: ExactRule = "content"
    """How exact question tokens are found where they are not marked."""
    seed: int = 0
    """Draws the controls."""


@dataclass(frozen=True)
class Put:
    """A text as a model reads it."""

    ids: list[int]
    """Its tokens, with a BOS where the model wants one."""
    shared: int
    """How many of them, at the front, are the few-shot examples that all questions share; 0 for a plain text."""
    tokens: list[str]
    """What each token says."""
    text: str
    """What they say together, without a BOS."""
    ranges: list[Range] | None
    """The characters of the text that each token touches; None where the tokenizer changes the text."""
    spans: Spans | None
    """Which tokens are what; None for a plain text."""

    def marked(self, marks: Marks, what: str) -> list[int]:
        """Tokens chosen by hand."""
        return marked_tokens(marks, self.text, self.ranges, range(len(self.ids)), what)


def put(model: Model, text: str | Asked) -> Put:
    """Put a text to a model: its tokens, and where it is a question with an answer, which of them are what."""
    return _put_plain(model, text) if isinstance(text, str) else _put_asked(model, text)


def _put_plain(model: Model, text: str) -> Put:
    tokenizer = model.tokenizer
    bos = [tokenizer.bos_token_id] if model.wants_bos else []
    own: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    if bos and own[:1] == bos:  # the text brings it
        bos = []
    ids = [*bos, *own]
    if not own:
        raise ModelError("the prompt is empty")
    ranges = align(tokenizer, ids, text, token=len(bos))
    return Put(ids, 0, _said(model, ids), text, ranges and [(0, 0)] * len(bos) + ranges, None)


def _put_asked(model: Model, asked: Asked) -> Put:
    prompter = Prompter(model.tokenizer, asked.prompt, model.wants_bos)
    prompt, answer = prompter(asked.question, asked.context), asked.answer.strip()
    answered = answer_ids(prompter, prompt, answer)
    row = Question.asked(asked.question, [answer], asked.context)
    by_hand = ByHand(asked.exact_question, asked.exact_answer)
    maker = SampleMaker(prompter, SpansSpec(exact_question=asked.rule), asked.seed)
    spans = maker.spans(row, prompt, answered, answer, by_hand)
    if spans.dropped is not None:
        raise ModelError(f"cannot trace this question and answer: {spans.dropped}")
    ids = [*prompt.ids, *answered]
    text = decode(model.tokenizer, ids[prompt.bos :])
    ranges = align(model.tokenizer, ids, text, token=prompt.bos)
    placed = ranges and [(0, 0)] * prompt.bos + ranges
    return Put(ids, len(prompter.shared_ids), _said(model, ids), text, placed, spans)


def _said(model: Model, ids: list[int]) -> list[str]:
    """What each token says by itself."""
    return [decode(model.tokenizer, [token]) for token in ids]
