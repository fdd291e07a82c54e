"""Labels for a model's own words without a judge: let it write the next name, date or number of a real passage.

A passage is cut in the middle of a sentence, right before a name, a date or a number. The model continues the text, and
the grader of short answers compares what it wrote first with what the passage says there. The idea is that of MIND (Su
et al., Findings of ACL 2024). Several continuations of one prefix make a test within a prefix, where neither topic nor
difficulty can help. Where to cut depends on the passage's text alone. A label says what the passage says: some
continuations that are labelled wrong are other true ones (checks/judged/SmolLM2-135M-own-words.jsonl).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from anchorscope.grades.dates import dates
from anchorscope.grades.fold import split_words
from anchorscope.grades.grading import RULES, grader
from anchorscope.grades.normalise import ARTICLES, comparable_words
from anchorscope.grades.numerals import as_digits
from anchorscope.progress import Progress, silent
from anchorscope.spans.passages import sentences
from anchorscope.spans.words import FUNCTION_WORDS, words
from anchorscope.words.record import Span, Text

if TYPE_CHECKING:
    from anchorscope.answers.generate import Generated
    from anchorscope.models.load import Model, Tokenizer

Kind = Literal["name", "date", "number"]
Outcome = Literal["right", "wrong", "repeated", "cannot tell", "not an entity", "another kind", "unfinished", "empty"]

FEWEST = 4  # words of the sentence that stand before an entity
LONGEST = 700  # characters of a prefix
TOGETHER = 128  # prefixes that are continued at a time


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CALENDAR = _set(
    "january february march april may june july august september october november december monday tuesday wednesday"
    " thursday friday saturday sunday"
)
_CONNECTORS = _set("of de la le du des der den von van del della di da dos al el bin ibn")
# words after which much is true beside what the passage says: one of a list, one of many examples, a rough number
_OPEN = _set(
    "and or nor as including include includes like both between either than over under above below about around"
    " approximately nearly almost some roughly circa only least most up another other every"
)
_JOINT = re.compile(r" |['’]s | ?& ?")
_INITIAL = re.compile(r"[A-Z]|St|Mt|Dr|Mr|Mrs|Ms|Jr|Sr|Ft|Gen|Lt|Col|Capt|Sgt|Prof|Rev")
_NUMBER, _YEAR = re.compile(r"\d+(?:\.\d+)?"), re.compile(r"1\d{3}|20\d{2}")
# a sign or the end, or else a word
_NEXT = re.compile(r"[\s\"”')]*(?:$|[.,;:!?\n]|\s\()|\s+(?=([\w’']+))")
_GLUED, _BEFORE = re.compile(r"[-–—/:'’]|\.\w"), re.compile(r"[-–—/\w]")
# the first or the second of several names
_LISTED = re.compile(r",?\s+(?:and|or)\s+(?:the\s+)?[A-Z]|,\s+(?:the\s+)?[A-Z][^,;.]*(?:,|\s(?:and|or)\s)")


class Entity(NamedTuple):
    """Characters of a text that are a name, a date or a number."""

    start: int
    """Number of the first character."""
    end: int
    """One past the last character."""
    kind: Kind
    """What it is."""


class Place(NamedTuple):
    """Where a passage can be cut: right before an entity."""

    entity: Entity
    """Characters of the passage that the model has to write itself."""
    sentence_end: int
    """One past the last character of the entity's sentence."""


class Passage(NamedTuple):
    """A text to be cut."""

    id: str
    """Name of the passage, different for each."""
    text: str
    """Text of the passage."""
    title: str = ""
    """Title of its page, or empty. The model reads it on a line of its own before the passage."""


@dataclass(frozen=True, slots=True)
class EntityCut:
    """A passage up to an entity, and the entity."""

    id: str
    """Passage and number of the entity in it, such as squad-12/3."""
    passage: str
    """Name of the passage."""
    cluster: str
    """Title of the passage's page, or the name of the passage where it has no title."""
    prefix: str
    """Title and text before the entity, without white space at the end."""
    entity: str
    """What the passage says next."""
    kind: Kind
    """What that is."""
    rest: str
    """What stands behind the entity, up to the end of the sentence."""


class Continuation(NamedTuple):
    """What a model wrote after a prefix, and what became of it."""

    cut: EntityCut
    """What was continued."""
    number: int
    """0 for the greedy continuation, from 1 for the sampled ones."""
    response: str
    """What the model wrote, up to the end of its sentence."""
    outcome: Outcome
    """Label, or the reason why there is none."""
    text: Text | None
    """The labelled record, or None without a label."""


# --- where to cut -----------------------------------------------------------------------------------------------


def entities(text: str) -> list[Entity]:
    """The dates, numbers and names of a text, from left to right and without overlap.

    A year is a date. A number is written in digits or in words, with *million* but without its unit. A name is several
    capitalised words in a row; one before a noun (*the German army*) or before *'s* is left out, because it could as
    well be missing. So is a number that is part of a range or a compound (24–10, 5-year).
    """
    numerals = as_digits(split_words(text, RULES))
    found: list[Entity] = []
    for date in dates(numerals, text):
        start, end = numerals[date.first].start, numerals[date.last].end
        if date.precision > 1 or (_YEAR.fullmatch(text[start:end]) and _stands_alone(text, end)):
            found.append(Entity(start, end, "date"))
    numbers = [
        Entity(start, end, "number")
        for word, start, end in numerals
        if _NUMBER.fullmatch(word) and _is_count(text[start:end])
    ]
    for more in (_names(text), numbers):
        found += [one for one in more if not any(one.start < other.end and other.start < one.end for other in found)]
    return sorted(one for one in found if not (_GLUED.match(text, one.end) or _BEFORE.search(text[: one.start][-1:])))


def _is_count(written: str) -> bool:
    """Whether a number is written in digits or in lower case, and is neither a year nor the pronoun *one*."""
    return (written[0].isdigit() or written[0].islower()) and written != "one" and not _YEAR.fullmatch(written)


def _names(text: str) -> list[Entity]:
    found, ranges = [], words(text)
    at = 0
    while at < len(ranges):
        last = _name_from(text, ranges, at)
        if last is None:
            at += 1
            continue
        start, end = ranges[at][0], ranges[last][1]
        initial = ranges[last][0] + 1 == end  # U.S. may go on
        adjective = re.search(r"-[a-z]+$", text[start:end])  # French-speaking
        if not initial and not adjective and _stands_alone(text, end):
            found.append(Entity(start, end, "name"))
        at = last + 1
    return found


def _name_from(text: str, ranges: Sequence[tuple[int, int]], first: int) -> int | None:
    """The number of the last word of the name that begins with a word, or None where no name begins."""
    word = text[slice(*ranges[first])]
    if not word[0].isupper() or word.lower() in FUNCTION_WORDS | _CALENDAR:
        return None
    last, at = first, first + 1
    while at < len(ranges):
        word, before = text[slice(*ranges[at])], text[slice(*ranges[at - 1])]
        gap = text[ranges[at - 1][1] : ranges[at][0]]
        dotted = _INITIAL.fullmatch(before) and gap in (". ", ".")
        if not (dotted or _JOINT.fullmatch(gap)) or at - last > 3:
            break
        if word[0].isupper() or (at - last == 1 and re.fullmatch(r"\d{1,3}", word)):
            last = at
        elif word not in _CONNECTORS and not (word == "the" and before in _CONNECTORS):
            break
        at += 1
    return last


def _stands_alone(text: str, end: int) -> bool:
    """Whether the text ends here, or goes on with a sign or a function word, not with a noun or a possessive."""
    following = _NEXT.match(text, end)
    return following is not None and (following[1] is None or following[1].lower() in FUNCTION_WORDS)


def places(passage: str) -> list[Place]:
    """Where the sentences of a passage can be cut: before an entity that the text has not prepared by its own words.

    At least four words of the sentence stand before it. The word before it is in lower case and leaves little open (not
    *and*, *such as*, *about*). No word of the entity but *of* and the like stands earlier in the passage, not even in
    the plural, so copying does not help.
    """
    found = []
    stops = sentences(passage)
    for entity in entities(passage):
        start, stop = next((start, stop) for start, stop in stops if start <= entity.start < stop)
        said = passage[start : entity.start]
        before = words(said)
        if len(before) < FEWEST or said[before[-1][1] :] != " " or entity.end > stop:
            continue
        *_, earlier, word = (said[slice(*each)] for each in before)
        part = word in _CONNECTORS - {"of"} or (word == "the" and earlier in ("and", "or"))
        listed = entity.kind == "name" and (part or _LISTED.match(passage, entity.end))
        seen = _own(passage[slice(*entity[:2])]) & _own(passage[: entity.start])
        if word[0].islower() and word not in _OPEN and not listed and not seen:
            found.append(Place(entity, stop))
    return found


def _own(text: str) -> set[str]:
    """The words of a text in comparable form, without articles and connectors."""
    return {word.text for word in comparable_words(text, RULES)} - ARTICLES - _CONNECTORS - {"and", "in"}


def cut(passages: Iterable[Passage], most: int | None = None) -> list[EntityCut]:
    """The cuts of passages, at most so many of each, chosen by a hash. An entity in the title is none."""
    cuts = []
    for passage in passages:
        head = f"{passage.title}\n" if passage.title else ""
        own = []
        for number, place in enumerate(places(passage.text)):
            start, end, kind = place.entity
            prefix, entity = head + passage.text[:start].rstrip(), passage.text[start:end]
            if len(prefix) <= LONGEST and not _own(entity) & _own(passage.title):
                rest, name = passage.text[end : place.sentence_end], f"{passage.id}/{number}"
                own.append(EntityCut(name, passage.id, passage.title or passage.id, prefix, entity, kind, rest))
        chosen = {one.id for one in sorted(own, key=lambda one: _hash(one.id))[:most]}
        cuts += [one for one in own if one.id in chosen]
    return cuts


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


# --- what a model writes there ----------------------------------------------------------------------------------


def leading(response: str) -> Entity | None:
    """The entity that a continuation begins with; *the* may stand before a name."""
    lead = re.match(r" (?:the (?=[A-Z]))?", response)
    return next((one for one in entities(response) if lead and one.start == lead.end()), None)


def graded(cut: EntityCut, written: str, after: str | None = None) -> bool | None:
    """Whether what was written is what the passage says; None where that cannot be told.

    A name may be written as the grader takes it for a person or for anything else. It cannot be told of a name that
    says more than the passage (*New France*), that the rest of the real sentence says, or that is an acronym of the
    real one or the other way round; nor of a number that counts something else, if what comes `after` it is given.
    """
    grades = [grader()(written, [cut.entity], question).judgement for question in _QUESTIONS[cut.kind]]
    if cut.kind == "number" and after is not None and _unit(after) != _unit(cut.rest):
        return None
    if "right" in grades:
        return None if cut.kind == "name" and _own(written) - _own(cut.entity) else True
    later = f" {' '.join(word.text for word in comparable_words(cut.rest, RULES))} "
    same = f" {' '.join(word.text for word in comparable_words(written, RULES))} " in later
    return None if "cannot_tell" in grades or same or _acronym(written, cut.entity) else False


_QUESTIONS: dict[Kind, tuple[str, ...]] = {"name": ("", "Who?"), "date": ("",), "number": ("",)}


def _unit(after: str) -> set[str]:
    """The word behind a number in comparable form; empty before a sign or at the end."""
    match = re.match(r"\s*(?:%|\w+)", after)
    return {word.text for word in comparable_words(match.group(), RULES)} if match else set()


def _acronym(one: str, other: str) -> bool:
    """Whether one name is made of the first letters of the capitalised words of the other."""
    return any(
        len(short) > 1 and short.replace(".", "") == "".join(long[a] for a, _ in words(long) if long[a].isupper())
        for short, long in ((one, other), (other, one))
    )


def continue_texts(
    model: Model,
    cuts: Sequence[EntityCut],
    samples: int = 8,
    temperature: float = 0.8,
    seed: int = 0,
    *,
    tokens: int = 12,
    batch_tokens: int = 4_096,
    progress: Progress = silent,
) -> Iterator[Continuation]:
    """Continue each prefix greedily and so many times by sampling, and label what was written first.

    The model reads the prefix as plain text, behind a BOS token if the model wants one. An entity that an earlier
    continuation of the prefix has already is not labelled again, because the model's states at its words are the same.
    The prompt and the response of a record together are the text that the model read and wrote.
    """
    from anchorscope.answers.generate import Generator

    tokenizer = model.tokenizer
    generate = Generator(model, [tokenizer.bos_token_id] if model.wants_bos else [], tokens, batch_tokens)
    with progress(f"{model.name}: continuing", len(cuts)) as advance:
        for first in range(0, len(cuts), TOGETHER):
            some = cuts[first : first + TOGETHER]
            ids = tokenizer([one.prefix for one in some], add_special_tokens=False).input_ids
            prompts = [[*generate.shared_ids, *own] for own in ids]
            drawn: list[list[Generated]] = [[] for _ in some]
            if samples:
                drawn = generate.sample(prompts, samples, temperature, [f"{seed}/{one.id}" for one in some])
            for one, own, greedy, others in zip(some, ids, generate(prompts), drawn, strict=True):
                seen: set[str] = set()
                for number, made in enumerate([greedy, *others]):
                    response = _written(tokenizer, own, made.ids)
                    yield _labelled(one, number, response, made.ended, seen, model.name)
            advance(len(some))


def _written(tokenizer: Tokenizer, prompt: Sequence[int], ids: Sequence[int]) -> str:
    """The text of a continuation up to the end of its sentence, with the space that parts it from the prefix."""
    before, whole = (
        tokenizer.decode(part, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        for part in (prompt, [*prompt, *ids])
    )
    response = whole[len(before) :]
    return response[: next((stop for _, stop in sentences(response)), 0)].rstrip()


def _labelled(cut: EntityCut, number: int, response: str, ended: bool, seen: set[str], writer: str) -> Continuation:
    entity = leading(response)

    def without(outcome: Outcome) -> Continuation:
        return Continuation(cut, number, response, outcome, None)

    if not response:
        return without("empty")
    if entity is None or entity.kind != cut.kind:
        return without("not an entity" if entity is None else "another kind")
    if entity.end == len(response) and not ended:
        return without("unfinished")
    written = response[entity.start : entity.end]
    if written in seen:
        return without("repeated")
    seen.add(written)
    right = graded(cut, written, response[entity.end :])
    if right is None:
        return without("cannot tell")
    text = _record(f"{cut.id}#{number}", cut, response, entity, not right, cut.cluster, writer)
    return Continuation(cut, number, response, "right" if right else "wrong", text)


def _record(
    name: str, cut: EntityCut, response: str, entity: Entity, wrong: bool, cluster: str, writer: str | None = None
) -> Text:
    span = Span(entity.start, entity.end, wrong)
    return Text(
        name, response, cut.prefix, continues=True, cluster=cluster, writer=writer, spans=(span,), unmarked_right=False
    )


# --- entities that are swapped ----------------------------------------------------------------------------------


def crossed(cuts: Sequence[EntityCut]) -> list[Text]:
    """Four records of each pair of cuts a and b with entities A and B. A after a is right, and so is B after b.

    A after b and B after a are wrong. How likely an entity is by itself, and how hard a prefix is, cancel within the
    four. Each passage is paired with at most one other, of the same page where possible. Each cut is paired with at
    most one other, of the same kind and a similar form, and names after the same word. The entities share no word, and
    no word of an entity stands in the prefix or the sentence of the other. Where passages of two pages are paired, the
    two pages are one cluster. An id such as squad-1/0+squad-2/3#aB names the cuts, the prefix and the entity.
    """
    texts: list[Text] = []
    for first, second, cluster in _passage_pairs(cuts):
        left = list(second)
        for a in first:
            b = min((one for one in left if _swappable(a, one)), key=lambda one: _unlike(a, one), default=None)
            if b is None:
                continue
            left.remove(b)
            for prefix, entity, name in ((a, a, "aA"), (a, b, "aB"), (b, a, "bA"), (b, b, "bB")):
                place = Entity(1, 1 + len(entity.entity), entity.kind)
                wrong = prefix is not entity
                texts.append(_record(f"{a.id}+{b.id}#{name}", prefix, f" {entity.entity}", place, wrong, cluster))
    return texts


def _passage_pairs(cuts: Sequence[EntityCut]) -> Iterator[tuple[list[EntityCut], list[EntityCut], str]]:
    """The cuts of two passages, and their cluster: passages of a page in twos, then pages of one passage in twos."""
    pages: dict[str, dict[str, list[EntityCut]]] = {}
    for one in cuts:
        pages.setdefault(one.cluster, {}).setdefault(one.passage, []).append(one)
    single: list[tuple[str, list[EntityCut]]] = []
    for page in sorted(pages, key=_hash):
        passages = [pages[page][name] for name in sorted(pages[page], key=_hash)]
        if len(passages) == 1:
            single.append((page, passages[0]))
        for first, second in zip(passages[::2], passages[1::2], strict=False):
            yield first, second, page
    for (page, first), (other, second) in zip(single[::2], single[1::2], strict=False):
        yield first, second, f"{page} + {other}"


def _swappable(a: EntityCut, b: EntityCut) -> bool:
    """Whether two entities can change places: alike in form, after the same word if they are names, and both wrong."""
    before, after = (one.prefix.rsplit(maxsplit=1)[-1] for one in (a, b))
    lengths = [len(one.entity.split()) for one in (a, b)]
    alike = a.entity[0].isdigit() == b.entity[0].isdigit() and abs(lengths[0] - lengths[1]) < 2
    if a.kind != b.kind or not alike or (a.kind == "name" and before != after):
        return False
    own, other = _own(a.entity), _own(b.entity)
    apart = not own & other and not other & _own(a.prefix + a.rest) and not own & _own(b.prefix + b.rest)
    return apart and graded(a, b.entity) is False and graded(b, a.entity) is False


def _unlike(a: EntityCut, b: EntityCut) -> tuple[int, int]:
    """How much the forms of two entities differ: in words, then in characters."""
    return abs(len(a.entity.split()) - len(b.entity.split())), abs(len(a.entity) - len(b.entity))
