"""Crossed answers: two questions of one kind, each with its own accepted answer and with the other's.

Of (q1, a1), (q2, a2), (q1, a2) and (q2, a1), the first two are right and the last two wrong. Each answer is right once
and wrong once, and each question has one right and one wrong answer. So whatever is a property of the question alone
(its difficulty) or of the answer alone (how common it is, its length, type and form) is as frequent among right answers
as among wrong ones. Nothing is generated, and nothing is graded.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from anchorscope.questions.record import Question
from anchorscope.questions.row import group_key
from anchorscope.questions.sampling import draw

KINDS = 50  # kinds that are kept, for each pair that is wanted
POOL = 16  # candidates of one kind that are kept, for each pair that is wanted
LONGEST = 8  # words of an answer
FEWEST_LETTERS = 3  # of a word that an answer may share with a question
LOOKED_AT = 200  # questions among which the partner is chosen that shares most words, where there are no relations
_ASKED = re.compile(r"\b(how (?:many|much|long|old)|who|whom|whose|what|which|where|when|why|how)\b", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_SMALL = frozenset({
    "is", "was", "are", "were", "be", "been", "do", "does", "did", "has", "have", "had", "can", "could", "will",
    "would", "the", "a", "an", "of", "in", "on", "at", "to", "for", "from", "by", "with", "this", "that", "these",
    "those", "there", "it", "its", "name", "names", "named", "called", "kind", "type", "sort", "and", "or",
})  # fmt: skip
"""Words that do not say what a question asks for."""
_MONTHS = frozenset({
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
})  # fmt: skip
_NUMBERS = frozenset({
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "thirty", "forty", "fifty",
    "sixty", "seventy", "eighty", "ninety", "hundred", "thousand", "million", "billion",
})  # fmt: skip


class Candidate(NamedTuple):
    """A question that may be paired, with all that pairing asks of it."""

    question: Question
    answer: str
    """The accepted answer that is given to both questions of a pair."""
    rank: tuple[float, int]
    """Its place among candidates: the most popular subject first, then by a hash."""
    keys: frozenset[str]
    """What no two pairs may share."""
    words: frozenset[str]
    """Words of the question."""
    kind: str
    """What the question asks for: its relation, or its question word, the first word of weight behind it, and the type
    of the answer."""
    accepted: list[frozenset[str]]
    """Words of each accepted answer."""

    @classmethod
    def of(cls, question: Question, seed: int) -> Candidate:
        accepted = [_words(text) for text in question.answers]
        answer = question.answers[_usual(accepted)]
        keys = {f"question {question.question_group}", f"answer {group_key(answer)}"}
        if question.subject_group:
            keys.add(f"subject {question.subject_group}")
        rank = (-(question.popularity or 0.0), draw(question.id, seed))
        kind = question.relation or f"{', '.join(asked_for(question.question))}, {answer_type(answer)}"
        return cls(question, answer, rank, frozenset(keys), _words(question.question), kind, accepted)

    def fits(self, other: Candidate) -> bool:
        """Whether neither question accepts the other's answer, in any form, and they share nothing else.

        No answer may share a word with a question either: a family name betrays a father, and a name that the question
        offers betrays a choice, whoever reads it.
        """
        if self.keys & other.keys or self.accepts(other.answer) or other.accepts(self.answer):
            return False
        return not share_a_word([self.question.question, other.question.question], [self.answer, other.answer])

    def accepts(self, answer: str) -> bool:
        """Whether an answer may be right: it has all words of an accepted one, or an accepted one has all of its."""
        given = _words(answer)
        return not given or any(not words or words <= given or given <= words for words in self.accepted)


class Pair(NamedTuple):
    """Two questions whose answers are crossed."""

    first: Candidate
    second: Candidate

    def rows(self) -> Iterator[Question]:
        """The four rows: each question with its own answer, then with the other's."""
        for own, other in ((self.first, self.second), (self.second, self.first)):
            yield _given(own.question, "own", own.answer, True)
            yield _given(own.question, "other", other.answer, False)


def crossed_pairs(questions: Iterable[Question], count: int, seed: int) -> list[Pair]:
    """At most `count` pairs, dealt to the kinds of question in turn.

    The most popular subjects come first where the dataset gives their popularity, else the order is drawn by a hash.
    Where the dataset has no relations, the partner is a question of the same kind that shares as many words as can be.
    No two pairs share a question, a subject or an answer that is given, so pairs are independent of each other.
    """
    # 1. candidates by kind, the best first; what is kept does not grow with the dataset
    pools: dict[str, list[Candidate]] = {}
    last: list[tuple[int, str]] = []  # a heap of kinds with the last one in front
    for question in questions:
        candidate = Candidate.of(question, seed)
        if len(candidate.answer.split()) > LONGEST:
            continue
        if candidate.kind not in pools:
            pools[candidate.kind] = []
            heappush(last, (-draw(candidate.kind, seed), candidate.kind))
            if len(last) > KINDS * count:
                del pools[heappop(last)[1]]  # which comes back at most to be dropped again
        pool = pools.get(candidate.kind, [])
        pool.append(candidate)
        if len(pool) > 2 * POOL * count:
            pool[:] = _first(pool, POOL * count)
    # 2. one pair of each kind in turn, until there are enough or no two questions are left that fit
    waiting = {kind: _first(pools[kind], POOL * count) for _, kind in sorted(last, reverse=True)}
    pairs: list[Pair] = []
    used: set[str] = set()
    while waiting and len(pairs) < count:
        for kind in list(waiting):
            pair = _next_pair(waiting[kind], used)
            if pair is None:
                del waiting[kind]
            elif len(pairs) < count:
                pairs.append(pair)
                used |= pair.first.keys | pair.second.keys
    return pairs


def question_word(question: str) -> str:
    """What a question begins with, or asks by: who, which, how many …; other where it has none."""
    asked = _ASKED.search(question)
    return asked[0].lower() if asked else "other"


def asked_for(question: str) -> tuple[str, str]:
    """The question word, and the first word of weight behind it: which, river; who, wrote; when, born."""
    asked = _ASKED.search(question)
    behind = question[asked.end() :] if asked else question
    weighty = (word for word in _WORD.findall(behind.casefold()) if word not in _SMALL)
    return question_word(question), next(weighty, "")


def answer_type(answer: str) -> str:
    """The form of an answer: date, year, number, name (capitals or digits at the start of long words) or words."""
    words = _WORD.findall(answer)
    lower = {word.casefold() for word in words}
    if lower & _MONTHS and any(word.isdigit() for word in words):
        return "date"
    if any(re.fullmatch(r"1\d{3}|20\d{2}", word) for word in words):
        return "year"
    if words and (words[0].isdigit() or words[0].casefold() in _NUMBERS):
        return "number"
    long = [word for word in words if len(word) > 3] or words
    return "name" if long and all(word[0].isupper() or word[0].isdigit() for word in long) else "words"


def share_a_word(questions: Iterable[str], answers: Iterable[str]) -> bool:
    """Whether an answer shares a word with a question, apart from very short ones."""
    asked, answered = (
        {word for text in texts for word in _words(text) if len(word) >= FEWEST_LETTERS}
        for texts in (questions, answers)
    )
    return bool(asked & answered)


def _usual(accepted: list[frozenset[str]]) -> int:
    """Which of the accepted answers has words that stand in most of them, since aliases come in any order."""
    if len(accepted) == 1:
        return 0
    found_in = [sum(own <= other for other in accepted) if own else 0 for own in accepted]
    return found_in.index(max(found_in))


def _next_pair(waiting: list[Candidate], used: set[str]) -> Pair | None:
    """Take the first question whose keys are free and its partner; None where no two are left that fit."""
    waiting[:] = [candidate for candidate in waiting if not candidate.keys & used]
    for place, first in enumerate(waiting):
        fitting = (i for i in range(place + 1, len(waiting)) if first.fits(waiting[i]))
        partner = next(fitting, None)
        if partner is None:
            continue
        if first.question.relation is None:
            others = [partner, *islice(fitting, LOOKED_AT)]
            partner = max(others, key=lambda i: (len(first.words & waiting[i].words), -i))
        pair = Pair(first, waiting[partner])
        del waiting[partner], waiting[: place + 1]
        return pair
    return None


def _first(candidates: list[Candidate], count: int) -> list[Candidate]:
    return sorted(candidates, key=lambda candidate: candidate.rank)[:count]


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(group_key(text)))


def _given(question: Question, which: str, answer: str, label: bool) -> Question:
    extra = json.loads(question.extra) | {"given": answer, "label": label}
    return replace(question, id=f"{question.id}:{which}", extra=json.dumps(extra, ensure_ascii=False, sort_keys=True))


def crossed_rows(
    questions: Sequence[str], answers: Sequence[str], correct: Sequence[bool]
) -> list[tuple[int, int, int, int]]:
    """Rows of two questions with both answers: q1 with a1, q2 with a2, q1 with a2, q2 with a1. No row is in two.

    Texts are those that folds compare. Only the first two rows of each four are right.
    """
    place = {key: i for i, key in enumerate(zip(questions, answers, correct, strict=True))}
    right_to = {question: (answer, i) for (question, answer, is_right), i in place.items() if is_right}
    asked_by: defaultdict[str, list[str]] = defaultdict(list)
    for question, (answer, _) in right_to.items():
        asked_by[answer].append(question)
    found = []
    for (question, answer, is_right), wrong in place.items():
        if is_right or question not in right_to:
            continue
        own, right = right_to[question]
        # the wrong answer is right for another question, for which this question's own answer is wrong
        for other in asked_by[answer]:
            back = place.get((other, own, False))
            if back is not None and question < other:
                found.append((right, right_to[other][1], wrong, back))
    # where answers recur, such as yes and no, a question fits several others: each row counts once
    apart, used = [], set[int]()
    for rows in sorted(found):
        if used.isdisjoint(rows):
            apart.append(rows)
            used.update(rows)
    return apart
