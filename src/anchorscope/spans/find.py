"""Segments and named spans of one sample: which tokens are cut, which are cut instead, and where states are read.

Everything is decided on characters and carried over to tokens by decoding (alignment.py); the rules on text are in
words.py. docs/cuts.md says the rules in words, and how a knockout uses the pairs of a control.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from anchorscope.spans.alignment import Range, align, continuation
from anchorscope.spans.marks import ByHand, marked_tokens
from anchorscope.spans.passages import holding
from anchorscope.spans.record import Spans
from anchorscope.spans.words import answer_entity, content_words, words
from anchorscope.study.terms import Control, ExactRule

if TYPE_CHECKING:
    from anchorscope.models.prompts import Prompt
    from anchorscope.questions.record import Question


EMPTY_ANSWER = "the answer is empty"
NO_ROUND_TRIP = "does not round-trip through the tokenizer"
NO_SUBJECT = "the subject is not in the question"
NO_CONTENT = "no content words in the question"
NO_EXACT_ANSWER = "no exact answer tokens"
NO_CONTROLS = "no control tokens"
REASONS = (EMPTY_ANSWER, NO_ROUND_TRIP, NO_SUBJECT, NO_CONTENT, NO_EXACT_ANSWER, NO_CONTROLS)


class _Dropped(Exception):  # noqa: N818 — not an error: it carries a reason
    """Why a sample is left out."""


def find_spans(
    prompt: Prompt,
    answer_ids: Sequence[int],
    answer: str,
    question: Question,
    tokenizer: Any,
    rule: ExactRule = "content",
    controls: Collection[Control] = ("control_question", "control_random"),
    seed: int = 0,
    by_hand: ByHand = ByHand(),  # noqa: B008 — a value
) -> Spans:
    """Locate everything in prompt + answer. `answer_ids` must say `answer`, with white space around it at most.

    Exact tokens that are marked by hand may leave no tokens for a control; its lists are then empty.
    """
    try:
        return _find(prompt, answer_ids, answer, question, tokenizer, rule, controls, seed, by_hand)
    except _Dropped as reason:
        empty: dict[str, list[int]] = {column.name: [] for column in fields(Spans) if column.type == "list[int]"}
        return Spans(id=question.id, answer_last=-1, final=-1, prompt_last=-1, dropped=str(reason), **empty)


def _find(
    prompt: Prompt,
    answer_ids: Sequence[int],
    answer: str,
    question: Question,
    tokenizer: Any,
    rule: ExactRule,
    controls: Collection[Control],
    seed: int,
    by_hand: ByHand,
) -> Spans:
    # 1. which characters each token touches, and where the segments begin
    if not answer.strip() or not answer_ids:
        raise _Dropped(EMPTY_ANSWER)
    ids = [*prompt.ids, *answer_ids]
    ranges, answer_at = _align_sample(prompt, ids, answer, tokenizer)
    segments = _segments(prompt, ranges)
    cuttable = _cuttable(tokenizer, ids)

    # 2. the exact tokens of the question
    asked = prompt.text[slice(*prompt.question)]
    if by_hand.question is None:
        core = _core_elements(asked, question, rule)
        limit = prompt.segments["question"][1]
        touched = _touching(ranges, range(*segments["question"]), core, prompt.question[0])
        exact = [token for token in touched if token in cuttable and ranges[token][1] <= limit]
    else:
        shifted = _shifted(ranges, prompt.question[0])
        exact = marked_tokens(by_hand.question, asked, shifted, range(*segments["question"]), "exact_question")
        exact = [token for token in exact if token in cuttable]
        core = [_within(shifted[token], asked) for token in exact]
    if not exact:
        raise _Dropped(NO_CONTENT)

    # 3. those of the answer
    answers = range(len(prompt.ids), len(ids))
    if by_hand.answer is None:
        entity = answer_entity(answer)
        exact_answer = _touching(ranges, answers, [entity], answer_at) if entity else []
    else:
        shifted = _shifted(ranges, answer_at)
        exact_answer = marked_tokens(by_hand.answer, answer, shifted, answers, "exact_answer")
        entity = _within((shifted[exact_answer[0]][0], shifted[exact_answer[-1]][1]), answer)
    if entity is None or not exact_answer:
        raise _Dropped(NO_EXACT_ANSWER)

    # 4. the sentences of the passage that hold an accepted answer, or the given one
    passage = range(*segments.get("context", [0, 0]))
    evidence = _evidence(prompt, ranges, passage, [*question.answers, answer[slice(*entity)]])
    evidence = [token for token in evidence if token in cuttable]

    # 5. for each control a partner of each exact token, as far as there are enough
    bare = _touching(ranges, range(*segments["question"]), [prompt.question])
    after_prefix = range(segments["prefix"][1], len(prompt.ids))
    shots = _prefix_content(prompt, ranges, range(*segments["prefix"])) if "control_prefix" in controls else []
    others: dict[Control, Collection[int]] = {
        "control_question": bare,
        "control_random": after_prefix,
        "control_prefix": shots,
        "control_evidence": passage,
    }
    pairs: dict[str, list[tuple[int, int]]] = {}
    for control in controls:
        paired_with = evidence if control == "control_evidence" else exact
        candidates = [token for token in others[control] if token in cuttable and token not in paired_with]
        pairs[control] = _pair(paired_with, candidates, f"{seed}/{control}/{question.id}")
        if not pairs[control] and by_hand.question is None and control != "control_evidence":
            raise _Dropped(NO_CONTROLS)
    paired = {
        f"{control}_{side}": [pair[at] for pair in pairs.get(control, [])]
        for control in others
        for at, side in enumerate(("exact", "control"))
    }
    return Spans(
        id=question.id,
        prefix=segments["prefix"],
        context=segments.get("context", []),
        question=segments["question"],
        cue=segments["cue"],
        answer=[answers.start, answers.stop],
        exact_question=exact,
        exact_question_text=[place for element in core for place in element],
        exact_answer=exact_answer,
        exact_answer_text=list(entity),
        answer_last=exact_answer[-1],
        final=_touching(ranges, answers, [(0, len(answer.rstrip()))], answer_at)[-1],
        prompt_last=len(prompt.ids) - 1,
        evidence=evidence,
        **paired,
        dropped=None,
    )


def _prefix_content(prompt: Prompt, ranges: list[Range], tokens: range) -> list[int]:
    """The tokens of the prefix that touch a content word; the letters of `Q:` and `A:` are none."""
    start, end = prompt.segments["prefix"]
    words_there = [word for word in content_words(prompt.text[start:end]) if word[1] - word[0] > 1]
    return _touching(ranges, tokens, words_there, start)


def _evidence(prompt: Prompt, ranges: list[Range], tokens: range, answers: list[str]) -> list[int]:
    """The tokens of the passage's sentences that hold one of the answers; none without a passage."""
    if "context" not in prompt.segments:
        return []
    start, end = prompt.segments["context"]
    return _touching(ranges, tokens, holding(prompt.text[start:end].rstrip(), answers), start)


def disagrees(answer: str, exact: Range, matched: Range) -> bool:
    """Whether the alias that grading matched ends at another word than the exact answer does.

    Both are character ranges of the answer. Nothing is moved on account of it: it is counted and reported.
    """
    return _last_word(answer, exact) != _last_word(answer, matched)


def _last_word(text: str, span: Range) -> Range:
    """The last word that the range touches; the range itself where it touches none."""
    return max((word for word in words(text) if word[0] < span[1] and word[1] > span[0]), default=span)


def _align_sample(prompt: Prompt, ids: list[int], answer: str, tokenizer: Any) -> tuple[list[Range], int]:
    """Character ranges of all tokens (a BOS has none), and where the answer begins in prompt + answer."""
    added = continuation(tokenizer, ids, len(prompt.ids))
    place = -1 if added is None else added.find(answer)
    if added is None or place < 0 or (added[:place] + added[place + len(answer) :]).strip():
        raise _Dropped(NO_ROUND_TRIP)
    head = align(tokenizer, prompt.ids, prompt.text, token=prompt.bos)
    text = prompt.text + added
    tail = align(tokenizer, ids, text, token=len(prompt.ids), char=len(prompt.text))
    if head is None or tail is None:
        raise _Dropped(NO_ROUND_TRIP)
    return [(0, 0)] * prompt.bos + head + tail, len(prompt.text) + place


def _segments(prompt: Prompt, ranges: list[Range]) -> dict[str, list[int]]:
    """A token belongs to the segment that its first character lies in; a BOS to the prefix."""
    starts = [start for start, _ in ranges[: len(prompt.ids)]]
    ranges_of = {}
    for name, (start, end) in prompt.segments.items():
        first = bisect_left(starts, start, lo=prompt.bos)
        ranges_of[name] = [0 if name == "prefix" else first, bisect_left(starts, end, lo=prompt.bos)]
    return ranges_of


def _core_elements(text: str, question: Question, rule: ExactRule) -> list[Range]:
    """The character ranges of the question's core elements, in order."""
    core = content_words(text)
    if rule == "dataset":
        subject = _locate(question.subject or "", text)
        if subject is None:
            raise _Dropped(NO_SUBJECT)
        core = sorted({subject, *core})
    return core


def _locate(subject: str, text: str) -> Range | None:
    """The subject in the question: as written or else in any case, as whole words or else as a part of one.

    The last of several: the templates name the subject after their own words ("Who is the author of Who?").
    """
    if not subject.strip():
        return None
    for pattern in (rf"(?<!\w){re.escape(subject)}(?!\w)", re.escape(subject)):
        for flags in (re.UNICODE, re.IGNORECASE):
            if matches := list(re.finditer(pattern, text, flags)):
                return matches[-1].span()
    return None


def _shifted(ranges: list[Range], start: int) -> list[Range]:
    """The same ranges, counted from `start`."""
    return [(first - start, last - start) for first, last in ranges]


def _within(span: Range, text: str) -> Range:
    """The part of a range that lies in a text."""
    return max(0, span[0]), min(len(text), span[1])


def _touching(ranges: list[Range], tokens: Iterable[int], spans: Iterable[Range], offset: int = 0) -> list[int]:
    """The tokens that touch a character of any of the spans, which count from `offset`."""
    placed = [(start + offset, end + offset) for start, end in spans]
    return [t for t in tokens if any(ranges[t][0] < end and ranges[t][1] > start for start, end in placed)]


_special: WeakKeyDictionary[Any, frozenset[int]] = WeakKeyDictionary()


def _cuttable(tokenizer: Any, ids: list[int]) -> set[int]:
    """All tokens but the first and the special ones: much attention rests on those whatever the text says."""
    if tokenizer not in _special:
        added = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
        _special[tokenizer] = frozenset(added | set(tokenizer.all_special_ids))
    special = _special[tokenizer]
    return {token for token in range(1, len(ids)) if ids[token] not in special}


def _pair(exact: list[int], candidates: list[int], key: str) -> list[tuple[int, int]]:
    """As many (exact, control) pairs as there can be, near each other: the smallest total distance.

    Among equals a draw by `key` decides, so that controls do not lie on one side of the exact tokens in every sample.
    """
    from scipy.optimize import linear_sum_assignment  # half a second that reading tables need not wait for

    if not exact or not candidates:
        return []
    rows, columns = np.array(exact)[:, None], np.array(candidates)[None, :]
    draw = np.array([_draw(f"{key}/{token}") for token in candidates])[None, :]  # in all less than one position
    cost = np.abs(rows - columns) + draw / min(len(exact), len(candidates))
    chosen, partners = linear_sum_assignment(cost)
    # in order the total distance is no larger, and pairs do not cross
    return list(zip(sorted(exact[i] for i in chosen), sorted(candidates[j] for j in partners), strict=True))


def _draw(key: str) -> float:
    """A number in [0, 1) that depends on the key alone."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=6).digest(), "big") / 2**48
