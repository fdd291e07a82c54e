"""All that is computed of a sample in one pass: its streams, where each is read, and whose tokens are predicted.

The passes of a study are its conditions at its positions, and the clean one before any answer exists. Where it asks for
evidence, further ones go through with them: donors and an answer behind a BOS alone, read where the others are; and
the mirror, whose streams are one token each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from anchorscope.spans.record import Spans
from anchorscope.spans.samples import Sample
from anchorscope.study import EvidenceSpec, TraceSpec
from anchorscope.study.terms import MIRROR, MIRRORED, QUESTION_ONLY, SUPPORTED, Condition, Further, Position, SpanName
from anchorscope.traces.conditions import cut_of, place_of, stream_of
from anchorscope.traces.knockout import Knockout
from anchorscope.traces.layout import Stream, cut_stream
from anchorscope.traces.tracer import Read

MIRROR_CUTS: dict[Condition | Further, SpanName] = {
    "mirror_question": "exact_question",
    "mirror_answer": "exact_answer",
    "mirror_both": "exact_both",
}
"""What each of the mirror's passes cuts, for the token after the answer."""

ReadPosition = Position | Literal["answer_mean"]
"""A token that is read, or the mean over all tokens of the answer."""
ANSWER_MEAN: ReadPosition = "answer_mean"


class Patch(NamedTuple):
    """Other tokens in the place of some of a sample's own."""

    places: tuple[int, ...]
    ids: tuple[int, ...]


class Kept(NamedTuple):
    """What is read of every sample."""

    stream: int
    """The number of its stream in a sample."""
    name: Condition | Further
    position: ReadPosition
    """At which token, or the mean over the answer's."""


def further_of(spec: EvidenceSpec | None) -> list[Further]:
    if spec is None:
        return []
    return [*spec.further, *MIRRORED]


@dataclass(frozen=True)
class Passes:
    """What is computed of each sample."""

    spec: TraceSpec
    shared_ids: Sequence[int]
    layers: int
    evidence: EvidenceSpec | None = None
    closing: int = 0
    bos: int = 0
    """How many of the shared tokens are a BOS: 0 or 1."""
    patches: Mapping[str, Mapping[str, Patch]] = field(default_factory=dict)
    """By question, which tokens donors put in the place of its own. A sample that has none stays as it is."""
    passages: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By question, its prompt with another passage, without the shared tokens. A sample without one stays as it is."""
    support: bool = False
    """Whether the answer's log-probability is taken without evidence too."""
    said_under: tuple[Condition, ...] = ()
    """Conditions under which it is taken in place of those that are usual."""
    means: bool = False
    """Whether the mean over the answer's tokens is read in the clean pass."""

    @property
    def names(self) -> list[Condition | Further]:
        """Every condition, in the order of streams."""
        return [*self.spec.conditions, *further_of(self.evidence)]

    @property
    def kept(self) -> list[Kept]:
        """Every condition at every position that it is read at."""
        return [
            Kept(number, name, position) for number, name in enumerate(self.names) for position in self.positions(name)
        ]

    def positions(self, name: Condition | Further) -> list[ReadPosition]:
        """The positions read under a condition."""
        if name in MIRRORED:
            return [MIRROR]
        mirrored = [MIRROR] if self.evidence is not None else []
        means = [ANSWER_MEAN] if self.means else []
        more: list[ReadPosition] = [QUESTION_ONLY, *mirrored, *means] if name == "clean" else []
        return list(dict.fromkeys([*self.spec.positions, *more]))

    def places(self, name: Condition | Further, spans: Spans, position: ReadPosition) -> Sequence[int]:
        """Where a position is in the stream of a condition: one token, or all that a mean is taken over."""
        return range(*spans.answer) if position == ANSWER_MEAN else [self.place(name, spans, position)]

    def place(self, name: Condition | Further, spans: Spans, position: ReadPosition) -> int:
        """Where a position is in the stream of a condition; of a mean, the last token."""
        return self._place(name, spans, _last(spans, position))

    def _place(self, name: Condition | Further, spans: Spans, place: int) -> int:
        """Where a place of the clean stream, from the token before the answer on, is in the stream of a condition."""
        if name == "answer_bare":
            return place - spans.answer[0] + self.bos
        if name == "swapped_context":
            return place + self.moved(spans)
        return place_of("answer_only" if name == "answer_only" else "clean", spans, place)

    def moved(self, spans: Spans) -> int:
        """By how many tokens the answer moves back when the passage is swapped."""
        other = self.passages.get(spans.id)
        return 0 if other is None else len(self.shared_ids) + len(other) - spans.answer[0]

    def streams(self, sample: Sample) -> list[Stream]:
        """One for each condition. Tokens after the last that is read change nothing, and are not in it."""
        ids = [*self.shared_ids, *sample.answer.prompt_ids, *sample.answer.answer_ids, self.closing]
        streams = []
        for name in self.names:
            end = 1 + max(_last(sample.spans, position) for position in self.positions(name))
            streams.append(self._stream(name, ids[:end], sample))
        return streams

    def _stream(self, name: Condition | Further, ids: Sequence[int], sample: Sample) -> Stream:
        spans, shared = sample.spans, len(self.shared_ids)
        if name in MIRRORED:
            cut = Knockout(MIRROR_CUTS[name], "reader").cut(spans)
            return cut_stream(ids, shared, cut, range(self.layers))
        if name == "answer_bare":
            return Stream(tuple(ids[spans.answer[0] :]), self.bos)
        if name == "swapped_context":
            other = self.passages.get(sample.question.id)
            if other is None:
                return _patched(ids, shared, None)
            whole = [*ids[:shared], *other, *ids[spans.answer[0] :]]
            unlike = (place for place, pair in enumerate(zip(whole, ids, strict=False)) if pair[0] != pair[1])
            start = next(unlike, min(len(whole), len(ids)) - 1)  # up to there, the clean tokens serve
            return Stream(tuple(whole[start:]), start)
        if name.startswith("patched"):
            return _patched(ids, shared, self.patches.get(sample.question.id, {}).get(name))
        if name == "knockout" and "clean" not in self.names:  # no clean tokens serve
            cut = cut_of(name, spans, self.spec.into)
            return Stream(tuple(ids[shared:]), shared, cut, range(self.layers))
        return stream_of(name, ids, spans, shared, self.spec.into, self.layers)  # type: ignore[arg-type]

    @property
    def supported(self) -> list[Condition]:
        """The conditions under which the answer's log-probability is taken."""
        if self.said_under:
            return [*self.said_under]
        taken = self.support or self.evidence is not None
        return [name for name in SUPPORTED if name in self.spec.conditions] if taken else []

    def said(self, sample: Sample, number: int) -> list[tuple[Read, int]]:
        """The answer's tokens up to the last exact one, each with the token before it that predicts it.

        `number`: of the sample in its batch. Condition by condition; every one has as many.
        """
        first, last = sample.spans.answer[0], sample.spans.answer_last
        tokens = sample.answer.answer_ids[: last - first + 1]
        return [
            (Read(number, self.spec.conditions.index(name), self._place(name, sample.spans, place)), token)
            for name in self.supported
            for place, token in enumerate(tokens, first - 1)
        ]


def _last(spans: Spans, position: ReadPosition) -> int:
    """The place in the clean stream that is read; of a mean, the last one."""
    return spans.answer[1] - 1 if position == ANSWER_MEAN else int(getattr(spans, position))


def _patched(ids: Sequence[int], shared: int, patch: Patch | None) -> Stream:
    """The sample with other tokens in some places; as it is, where nothing is put there."""
    if patch is None:
        return Stream((ids[-1],), len(ids) - 1)
    replaced = list(ids)
    for place, token in zip(patch.places, patch.ids, strict=True):
        replaced[place] = token
    start = min(patch.places)
    return Stream(tuple(replaced[start:]), start)
