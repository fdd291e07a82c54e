"""Which questions lend their exact tokens to which samples (token patching), and what that leaves in their place.

A donor asks for the same relation, or where a set names none begins with the same question word, and has as many exact
question tokens. It shares neither the question, the subject nor an answer with the sample. Samples are taken in blocks
that share their donors: what a donor does to all of a block can then be told from what it does to one sample alone.
A control patch puts as many other tokens of the question in the place of the sample's own.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from anchorscope.questions.crossed import question_word
from anchorscope.questions.row import group_key
from anchorscope.spans.samples import Sample
from anchorscope.traces.passes import Patch

BLOCK = 6  # samples that share their donors
POOL = 200  # questions that are looked at for donors of a block, at most


class _Lender(NamedTuple):
    """What of a sample donors are chosen by, and what it lends."""

    id: str
    rank: bytes
    """Where it stands in the draw."""
    like: tuple[str, int]
    """Its relation or question word, and how many exact question tokens it has."""
    others: int
    """How many other tokens of its question are paired with exact ones."""
    apart: frozenset[str]
    """Its question, subject and accepted answers: a donor shares none of them."""
    given: str
    places: tuple[int, ...]
    exact: tuple[int, ...]
    control_places: tuple[int, ...]
    control: tuple[int, ...]


class Donors(NamedTuple):
    """Whose tokens are put in the place of a sample's own."""

    block: int
    """Samples with the same have the same donors; -1 where a sample has none."""
    ids: list[str]
    """The donors' questions; empty where too few are alike."""
    patches: dict[str, Patch]
    """What is put where, under each condition that patches."""


def find_donors(
    samples: Iterator[Sample], chosen: Collection[str], shared: int, count: int, seed: int
) -> dict[str, Donors]:
    """The donors of the chosen samples, from among all that can be used. `shared`: tokens of the prefix."""
    lenders = [_lender(sample, shared, seed) for sample in samples if sample.spans.dropped is None]
    # 1. who is alike: by relation or question word and number of exact tokens; and by the number of other tokens
    alike: defaultdict[tuple[str, int], list[_Lender]] = defaultdict(list)
    as_many: defaultdict[int, list[_Lender]] = defaultdict(list)
    for lender in sorted(lenders, key=lambda lender: lender.rank):
        alike[lender.like].append(lender)
        as_many[lender.others].append(lender)
    # 2. the chosen ones in blocks, and for each block the first donors that fit all of it
    by_sample: dict[str, Donors] = {}
    blocks = 0
    for group in alike.values():
        taken = [lender for lender in group if lender.id in chosen]
        for begin in range(0, len(taken), BLOCK):
            block = taken[begin : begin + BLOCK]
            pool = _rotated(group, block[-1])
            donors = [donor for donor in pool if all(_fits(donor, sample) for sample in block)][:count]
            enough = len(donors) == count
            for sample in block:
                patches: dict[str, Patch] = {}
                if enough:
                    patches = {
                        f"patched_{number}": Patch(sample.places, donor.exact) for number, donor in enumerate(donors, 1)
                    }
                pool = _rotated(as_many[sample.others], sample) if sample.others else []
                other = next((x for x in pool if x.control != sample.control and _fits(x, sample)), None)
                if other is not None:
                    patches["patched_control"] = Patch(sample.control_places, other.control)
                by_sample[sample.id] = Donors(
                    blocks if enough else -1, [donor.id for donor in donors] * enough, patches
                )
            blocks += enough
    return by_sample


def _lender(sample: Sample, shared: int, seed: int) -> _Lender:
    question, spans = sample.question, sample.spans
    control = spans.control_question_control

    def at(places: Sequence[int]) -> tuple[int, ...]:
        return tuple(sample.answer.prompt_ids[place - shared] for place in places)

    accepted = {f"answer {group_key(answer)}" for answer in question.answers}
    apart = {f"question {question.question_group}", f"subject {question.subject_group or question.id}", *accepted}
    return _Lender(
        question.id,
        hashlib.blake2b(f"{seed}/donors/{question.id}".encode(), digest_size=8).digest(),
        (question.relation or question_word(question.question), len(spans.exact_question)),
        len(control),
        frozenset(apart),
        f"answer {group_key(sample.answer.answer)}",
        tuple(spans.exact_question),
        at(spans.exact_question),
        tuple(control),
        at(control),
    )


def _fits(donor: _Lender, sample: _Lender) -> bool:
    """Whether a question may lend: it shares nothing with the sample, and the sample's answer is no answer to it."""
    return donor.id != sample.id and not donor.apart & sample.apart and sample.given not in donor.apart


def _rotated(group: Sequence[_Lender], last: _Lender) -> list[_Lender]:
    """Some of a group, from behind one of them on, round to its beginning: every block has others."""
    start = next(i for i, lender in enumerate(group) if lender is last) + 1
    return [*group[start:], *group[:start]][:POOL]
