"""Whether a short answer is right: an accepted answer must occur in it, as whole words.

A grader is a registered function. `plain` is the usual normalise-and-contain rule; `alias`, the default, adds rules
for writings that people accept. Each rule earns its place on answers that people judged
(checks/grader_against_people.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from anchorscope.grades.dates import Date, dates
from anchorscope.grades.echo import YES_NO, Choices, choices
from anchorscope.grades.fold import Word
from anchorscope.grades.lexicon import DROPPED, FULL_NAME, FUNCTION, INNER, MODIFIERS, ORDINARY, PERSON, SUFFIXES
from anchorscope.grades.normalise import ARTICLES, comparable_words, content, plain_words, symbols
from anchorscope.grades.record import Grade
from anchorscope.study.registry import Registry

Grader = Callable[[str, Sequence[str], str], Grade]
"""(answer, accepted answers, question) to a grade: right, wrong, or cannot_tell with its reason."""

DEFAULT = "alias"
WRONG = Grade("wrong")
GRADERS: Registry[Grader] = Registry("grader")
register = GRADERS.register  # makes a grader known under a name, for a study to choose


def grader(name: str = DEFAULT) -> Grader:
    return GRADERS[name]


RULES = frozenset(
    {
        "accents",  # Beyoncé, Beyonce
        "escapes",  # a literal \u00e9, as some sets have it
        "hyphens",  # hyphens and other signs part words, apostrophes do not; U.S. is US; 1,000 is 1000
        "compounds",  # marburg virus, marburgvirus
        "numbers",  # twenty-one, 21; third, 3rd; 1 million; World War II; sixth season, season 6
        "plural",  # amino acid, amino acids
        "dates",  # in any order of their parts
        "shorter_dates",  # 1972 for December 14, 1972, unless the day is asked for
        "contradiction",  # an accepted 2018 does not carry a wrong day of 2018
        "carriers",  # titles and leading prepositions of the accepted answer
        "names",  # middle names on one side only
        "short_names",  # Tom, Thomas
        "counts",  # how many: 25 for up to 25 players
        "part",  # the answer is at least half of the accepted answer
        "beginnings",  # a part begins as the accepted answer does: not France for Paris, France, nor tree
        "titles",  # a first word is taken for a title of a name only where a name follows: not Brooklyn, New York
        "schedules",  # when something next or newly starts, a year may say too little: cannot be told
        "surplus",  # one word matched, and the answer says more of its own, the Bank of England: cannot be told
        "both",  # an answer that names several of the choices has not chosen: cannot be told
        "echoes",  # what matched stands in the question, which does not offer it: cannot be told
        "small_words",  # a letter or a word like `in` matched, written otherwise: A and .a, in and IN: cannot be told
    }
)
"""The rules of `alias`. checks/grader_against_people.py measures what each one gains and costs."""


_COUNT = re.compile(r"\bhow (?:many|much|long|old|far|tall|big|high|often)\b|\bnumber of\b", re.IGNORECASE)
_DAY_ASKED = re.compile(r"\b(?:what|which|exact) (?:\w+ )?(?:date|day)\b", re.IGNORECASE)
_SCHEDULE = re.compile(r"\bwhen (?:do|does|is|are|will)\b.*\b(?:next|new|starts?|begins?|air|play)\b", re.IGNORECASE)
_PARTS = re.compile(r"[,;:()\[\]]")
_OPTIONS = re.compile(r"(?:^|\s)\(?a[.)]\s.+\s\(?b[.)]\s", re.IGNORECASE)  # a. soda b. beer c. wine
_YEAR = re.compile(r"\d{4}")
_NO_DATE_ASKED = re.compile(r"\b(?:where|who)\b", re.IGNORECASE)

ECHO = "the question says it"
YEAR = "a year where a day may be wanted"
SURPLUS = "it says more than what matched"
BOTH = "it names several of the choices"
SMALL_WORD = "a letter or a small word alone"


WordRun = tuple[int, int]  # numbers of the first and the last word


class _Match(NamedTuple):
    alias: str
    start: int
    """First character of the matched words in the answer."""
    end: int
    """One past the last."""
    reason: str | None = None
    """Why it tells nothing, if so."""


class _AnswerWords(NamedTuple):
    """An answer or an accepted answer, read once."""

    words: tuple[Word, ...]
    """Without articles."""
    texts: tuple[str, ...]
    """The same without their places."""
    line: str
    """The words with a space on either side, for a fast whole-word search."""
    core: tuple[str, ...]
    """Without leading prepositions and titles."""
    core_line: str
    """The core as such a line."""
    dates: tuple[Date, ...]
    date: Date | None
    """Where the core is nothing but a date."""
    commas: bool


class _QuestionFacts(NamedTuple):
    """What of a question matters to grading."""

    words: frozenset[str]
    """Its words in comparable form."""
    of_person: bool
    of_count: bool
    year_will_do: bool
    """Whether a year answers it where a day is accepted."""
    of_schedule: bool
    """Whether it asks when something next or newly happens, and a year may say too little."""
    choices: Choices
    """What it offers to choose from."""


def _line(texts: Sequence[str]) -> str:
    return f" {' '.join(texts)} "


def _find(line: str, within: str) -> WordRun | None:
    """Where a line of words first stands in another, by word number."""
    at = within.find(line)
    if at < 0:
        return None
    first = within.count(" ", 0, at + 1) - 1
    return first, first + line.count(" ") - 2


def _read(text: str, rules: frozenset[str], articles: bool = False) -> _AnswerWords:
    kept = comparable_words(text, rules)
    if not articles:
        kept = content(kept)
    texts = tuple(w.text for w in kept)
    at = 0
    while "carriers" in rules and at < len(texts) - 1 and texts[at] in DROPPED:
        at += 1
    dated = dates(kept, text) if "dates" in rules else []
    date = next((d for d in dated if d.first <= at and d.last == len(texts) - 1), None)
    return _AnswerWords(
        tuple(kept), texts, _line(texts), texts[at:], _line(texts[at:]), tuple(dated), date, commas="," in text
    )


_accepted = lru_cache(maxsize=32_768)(_read)  # accepted answers come again for each sample of a question


@lru_cache(maxsize=4_096)
def _question(question: str, rules: frozenset[str]) -> _QuestionFacts:
    words = comparable_words(question, rules)
    texts = frozenset(w.text for w in words)
    no_year = _DAY_ASKED.search(question) or _NO_DATE_ASKED.search(question)
    return _QuestionFacts(
        texts,
        bool(texts & PERSON),
        _COUNT.search(question) is not None,
        not no_year,
        bool(_SCHEDULE.search(question)),
        choices(words, question),
    )


@lru_cache(maxsize=32_768)
def _plain_line(text: str) -> str:
    return _line([w.text for w in plain_words(text)])


@register("plain")
def plain(answer: str, accepted: Sequence[str], question: str = "") -> Grade:
    """NFKC, lower case, punctuation deleted, articles dropped; an accepted answer occurs as whole words."""
    del question
    words = plain_words(answer)
    line = _line([w.text for w in words])
    matches = []
    for one in accepted:
        wanted = _plain_line(one)
        if wanted.strip() and (run := _find(wanted, line)):
            matches.append(_Match(one, words[run[0]].start, words[run[1]].end))
    return _best(matches)


def _best(matches: Sequence[_Match]) -> Grade:
    """The longest match, then the earliest, then the first accepted answer; one that tells before one that does not."""
    if not matches:
        return WRONG
    best = min(matches, key=lambda m: (m.reason is not None, m.start - m.end, m.start))
    return Grade("cannot_tell" if best.reason else "right", best.alias, best.start, best.end, best.reason)


def with_rules(rules: frozenset[str]) -> Grader:
    """The `alias` grader with some of its rules, to measure what each is worth."""

    def grade(answer: str, accepted: Sequence[str], question: str = "") -> Grade:
        given = _read(answer, rules)
        facts = _question(question, rules)
        known = [(text, _accepted(text, rules)) for text in accepted]
        matches = []
        for text, one in known:
            if not one.words:
                if span := _symbols(answer, text):
                    matches.append(_Match(text, *span))
                continue
            here = given
            if len(one.words) > 1 and one.texts[-1] in ARTICLES:  # vitamin A: here the A counts, wherever it stands
                one, here = _accepted(text, rules, True), _read(answer, rules, True)
            if not here.words or not (run := _match(here, one, facts, rules)):
                continue
            if not ("contradiction" in rules and _contradicted(here, one, [a for _, a in known])):
                covered = here.words[run[0] : run[1] + 1]
                start, end = min(w.start for w in covered), max(w.end for w in covered)
                whole = answer.strip().casefold() == text.strip().casefold()
                written = answer if whole else answer[start:end]
                reason = BOTH if "both" in rules and _OPTIONS.search(answer) else None
                if "surplus" in rules and not reason and _surplus(here.words, covered, answer, facts):
                    reason = SURPLUS
                reason = reason or _untold([w.text for w in covered], here.texts, written, text, facts, rules)
                matches.append(_Match(text, start, end, reason))
        return _best(matches)

    return grade


def _untold(
    covered: Sequence[str],
    given: Sequence[str],
    written: str,
    accepted: str,
    facts: _QuestionFacts,
    rules: frozenset[str],
) -> str | None:
    """Why a match tells nothing, if so."""
    words = [text for text in covered if text not in ARTICLES] or list(covered)
    if "small_words" in rules and len(words) == 1 and _small(words[0], written.strip(), accepted.strip()):
        return SMALL_WORD
    if "schedules" in rules and facts.of_schedule and _YEAR.fullmatch(written) and not _YEAR.fullmatch(accepted):
        return YEAR
    if "both" in rules and facts.choices.several(given):
        return BOTH
    spelt = [word for word in words if word.isdigit() and not any(c.isdigit() for c in written)]  # IV, four
    if "echoes" in rules and not spelt and facts.words.issuperset(words) and not facts.choices.offer(words):
        return ECHO
    return None


def _surplus(words: Sequence[Word], covered: Sequence[Word], answer: str, facts: _QuestionFacts) -> bool:
    """One word matched, and beside it, up to a comma or bracket, there is as much of its own: the Bank of England."""
    if len(covered) != 1 or not covered[0].text.isalpha() or len(covered[0].text) < 2 or covered[0].text in YES_NO:
        return False
    start = max((m.end() for m in _PARTS.finditer(answer, 0, covered[0].start)), default=0)
    ending = _PARTS.search(answer, covered[0].end)
    beside = [w.text for w in words if start <= w.start and w.end <= (ending.start() if ending else len(answer))]
    known = facts.words | DROPPED | FUNCTION | {covered[0].text}
    return sum(len(text) for text in beside if text not in known) >= len(covered[0].text)


def _small(word: str, written: str, accepted: str) -> bool:
    """A letter that is accepted with other signs around it, or an ordinary small word where a code is accepted."""
    if len(word) == 1 and not word.isdigit():
        return written.casefold() != accepted.casefold()
    return word in ORDINARY and not written.isupper() and accepted.isupper()


def _symbols(answer: str, accepted: str) -> tuple[int, int] | None:
    """An accepted answer without a word, such as `$`, must stand alone between white space."""
    chunks, wanted = symbols(answer), [w.text for w in symbols(accepted)]
    run = _find(_line(wanted), _line([w.text for w in chunks])) if wanted else None
    return (chunks[run[0]].start, chunks[run[1]].end) if run else None


def _match(given: _AnswerWords, one: _AnswerWords, facts: _QuestionFacts, rules: frozenset[str]) -> WordRun | None:
    if run := _find(one.line, given.line) or _find(one.core_line, given.line):
        return run
    if one.date and (run := _date(given, one.date, "shorter_dates" in rules and facts.year_will_do)):
        return run
    if "names" in rules and facts.of_person:
        titled = len(one.core) > 2 and not ("titles" in rules and (one.commas or one.core[1] in INNER))
        for name in (one.core, one.core[1:] if titled else ()):  # Pilot Roger B. Chaffee
            if run := _name(given.texts, name, "short_names" in rules):
                return run
    if _same_whole(given, one, facts, rules):
        return len(given.texts) - len(given.core), len(given.texts) - 1
    return None


def _date(given: _AnswerWords, wanted: Date, shorter: bool) -> WordRun | None:
    alone = len({d[:3] for d in given.dates}) == 1
    for date in given.dates:
        if date.agrees(wanted) and (date.precision >= wanted.precision or (shorter and alone)):
            return date.first, date.last
    return None


def _name(texts: Sequence[str], name: Sequence[str], short: bool) -> WordRun | None:
    """First and last name, with middle names or initials on one side only, or an initial for a middle name."""
    name = [t for t in name if t not in SUFFIXES]
    if len(name) < 2 or name[-1] not in texts or not all(t.isalpha() for t in name):
        return None
    for first, text in enumerate(texts):
        if text != name[0] and not (short and FULL_NAME.get(text, text) == FULL_NAME.get(name[0], name[0])):
            continue
        for last in range(first + 1, min(first + 6, len(texts))):
            if texts[last] in INNER:
                break
            if texts[last] == name[-1] and _middles(texts[first + 1 : last], name[1:-1]):
                return first, last
    return None


def _middles(a: Sequence[str], b: Sequence[str]) -> bool:
    return not a or not b or any(x == y or (x[0] == y[0] and 1 in (len(x), len(y))) for x in a for y in b)


def _same_whole(given: _AnswerWords, one: _AnswerWords, facts: _QuestionFacts, rules: frozenset[str]) -> bool:
    """Rules that compare the answer as a whole: it may say less than the accepted answer, but nothing else."""
    core = given.core
    if "compounds" in rules:
        joined = "".join(core)
        if len(joined) > 3 and not joined.isdigit() and joined == "".join(one.core):
            return True
    number = core[0] if len(core) == 1 and core[0][0].isdigit() else None
    if "counts" in rules and facts.of_count and number and [t for t in one.core if t[0].isdigit()] == [number]:
        return True
    return (
        "part" in rules
        and one.date is None
        and len(core) < len(one.core)
        and _part(given, one, facts, "beginnings" in rules)
    )


def _part(given: _AnswerWords, one: _AnswerWords, facts: _QuestionFacts, begins: bool) -> bool:
    """Whether the answer is the larger part of the accepted answer: a surname, `mahogany` of `mahogany tree`.

    It begins as that does, or it is a person's surname: `tree` says less than was asked, `France` of `Paris, France`
    something else.
    """
    core, run = given.core, _find(given.core_line, one.core_line)
    if run is None or 2 * sum(map(len, core)) < sum(map(len, one.core)):
        return False
    full_name = facts.of_person and len(core) > 1
    if not full_name and all(len(t) < 3 or t in facts.words or t in MODIFIERS for t in core):
        return False  # says nothing of its own
    if any(t[0].isdigit() and t not in core for t in one.core):
        return False  # `World War` is not `World War 2`
    if begins and run[0] > 0 and (one.commas or not facts.of_person):
        return False
    return not facts.of_person or full_name or run[1] == len(one.core) - 1


def _contradicted(given: _AnswerWords, one: _AnswerWords, accepted: Sequence[_AnswerWords]) -> bool:
    """`2018` does not carry `9 October 2018` if another day of 2018 is accepted, nor `Texas` `Waco, Texas`."""
    if one.date is not None:
        wanted = one.date
        finer = [a.date for a in accepted if a.date and a.date.precision > wanted.precision and a.date.agrees(wanted)]
        mine = [d for d in given.dates if d.precision > wanted.precision and d.agrees(wanted)]
        return bool(finer and mine) and not any(d.agrees(f) for d in mine for f in finer)
    if not (given.commas and given.core != one.core and given.line.endswith(one.core_line)):
        return False
    places = [a for a in accepted if a.commas and a.core != one.core and a.line.endswith(one.core_line)]
    return bool(places) and not any(_find(a.core_line, given.line) for a in places)


alias = register("alias")(with_rules(RULES))


def kind_of(question: str, accepted: Sequence[str]) -> str:
    """What a question asks for: `yes_no`, `either_or` where it offers the accepted answer as a choice, or `entity`."""
    words = [text for text in _accepted(accepted[0], RULES).texts if text not in ARTICLES]
    if YES_NO.issuperset(words) and words:
        return "yes_no"
    facts = _question(question, RULES)
    return "either_or" if words and facts.words.issuperset(words) and facts.choices.offer(words) else "entity"
