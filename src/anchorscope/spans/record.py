"""What one row of the `spans` table is."""

from __future__ import annotations

from dataclasses import dataclass

from anchorscope.store.stage import StageDef
from anchorscope.store.table import Kind


@dataclass(frozen=True, slots=True)
class Spans:
    """One row of the `spans` table: which tokens of a sample are what.

    Tokens are indices into prompt ids + answer ids, a BOS included.
    """

    id: str
    """the question's id"""
    prefix: list[int]
    """[start, end) of the prefix, BOS included"""
    context: list[int]
    """[start, end) of the context; empty list where there is none"""
    question: list[int]
    """[start, end) of the question's line"""
    cue: list[int]
    """[start, end) of the cue"""
    answer: list[int]
    """[start, end) of the answer"""
    exact_question: list[int]
    """tokens of the question's core elements, ascending"""
    exact_question_text: list[int]
    """start and end of each core element in the question, in characters"""
    exact_answer: list[int]
    """tokens of the answer's entity, ascending"""
    exact_answer_text: list[int]
    """[start, end) of the answer's entity in the answer, in characters"""
    answer_last: int
    """index of the last exact answer token"""
    final: int
    """index of the last token of the answer's text"""
    prompt_last: int
    """index of the last token before the answer"""
    control_question_exact: list[int]
    """exact question tokens with a partner in the next list"""
    control_question_control: list[int]
    """their partners: other tokens of the question"""
    control_random_exact: list[int]
    """exact question tokens with a partner in the next list"""
    control_random_control: list[int]
    """their partners: nearby tokens after the prefix"""
    control_prefix_exact: list[int]
    """exact question tokens with a partner in the next list"""
    control_prefix_control: list[int]
    """their partners: tokens of content words of the prefix"""
    evidence: list[int]
    """tokens of the passage's sentences that hold an accepted answer or the given one, ascending"""
    control_evidence_exact: list[int]
    """tokens of `evidence` with a partner in the next list"""
    control_evidence_control: list[int]
    """their partners: tokens of the passage's other sentences"""
    dropped: str | None
    """reason why the sample cannot be used, in which case its lists are empty and its indices -1; null otherwise"""

    @property
    def after_answer(self) -> int:
        """Index of the first token after the answer, which the prompt template determines (models/prompts.py)."""
        return self.answer[1]


SPANS = Kind("spans", Spans)

STAGES = (
    StageDef(
        "spans", (SPANS,), "anchorscope.spans.stage:stage_of", after=("questions", "answers"), needs="tokenizer",
        dealt_like="answers",
    ),
)  # fmt: skip
