"""Which passage stands in the place of a sample's own when passages are swapped; the answer is kept.

It is the one that the set names (`other_context`), such as a twin of the passage with another answer in it. Where the
set names none, it is another passage about the same subject that holds neither an accepted answer nor the given one.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable

from anchorscope.models.prompts import Prompter
from anchorscope.spans.passages import holding
from anchorscope.spans.samples import Sample


def swapped_prompts(
    samples: Iterable[Sample], chosen: Collection[str], prompter: Prompter, seed: int
) -> dict[str, list[int]]:
    """By question, the prompts of the chosen samples with another passage, without the tokens that all prompts share.

    A sample that has no passage, or for which there is no other one, is left out.
    """
    by_subject: defaultdict[str, dict[str, None]] = defaultdict(dict)
    asked: list[tuple[Sample, str | None]] = []
    for sample in samples:
        question = sample.question
        if not question.context:
            continue
        if question.subject_group:
            by_subject[question.subject_group][question.context] = None
        if question.id in chosen:
            asked.append((sample, question.other_context))
    found = [(sample, other or _another(sample, by_subject, seed)) for sample, other in asked]
    swapped = [(sample.question, other) for sample, other in found if other]
    prompts = prompter.many([(question.question, other) for question, other in swapped]) if swapped else []
    shared = len(prompter.shared_ids)
    return {question.id: prompt.ids[shared:] for (question, _), prompt in zip(swapped, prompts, strict=True)}


def _another(sample: Sample, by_subject: dict[str, dict[str, None]], seed: int) -> str | None:
    """A passage about the same subject, drawn by a hash, that holds no answer."""
    question = sample.question
    answers = [*question.answers, sample.answer.answer]

    def drawn(passage: str) -> bytes:
        return hashlib.blake2b(f"{seed}/{question.id}/{passage}".encode(), digest_size=8).digest()

    others = sorted(by_subject.get(question.subject_group or "", ()), key=drawn)
    return next((other for other in others if other != question.context and not holding(other, answers)), None)
