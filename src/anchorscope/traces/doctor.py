"""The self-test of a model: does what we compute equal what the slow, obvious way computes?

Each check compares two ways of getting the same activations, and differs from the others in one thing only, so that a
failure names its cause. A check that builds on one that failed is left out: it could only fail for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch

from anchorscope.errors import reason_of
from anchorscope.models.load import EAGER_FAMILIES, Model
from anchorscope.models.prompts import Prompt, Prompter
from anchorscope.questions.record import Question
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.record import Spans
from anchorscope.study.terms import SITES, Condition, Site
from anchorscope.traces.attention import attention_as
from anchorscope.traces.byhand import attention_by_hand
from anchorscope.traces.conditions import LAID_OUT, place_of, stream_of
from anchorscope.traces.doctor_tokens import CASES, Failed, NotTried, one_bos, own_tokenizer, spans_round_trip
from anchorscope.traces.knockout import NOTHING, Cut, Knockout
from anchorscope.traces.layout import Stream, clean_stream, cut_stream
from anchorscope.traces.tracer import Read, Tracer, read_plain

# Relative to the layer's largest activation; in bfloat16, where single activations round by several percent of that,
# the distance of the states relative to their length.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 0.15}
OF_EFFECT = 0.2  # of the knockout's own effect, by which its cut may differ from that by hand
ROUNDED = 4  # tolerances that a model's own rounding in float32 may add where a cut is checked by hand
EAGER = 1e-5  # transformers casts the eager softmax to float32
LONGEST_WINDOW = 2048  # a longer sliding window costs too much to fill here
SiteStates = dict[Site, torch.Tensor]
"""States of each site: (layer, read, width)."""


@dataclass(frozen=True)
class Check:
    """What one check found."""

    name: str
    """Name of the check."""
    passed: bool | None
    """Whether it passed; None where it was left out, for the reason in `detail`."""
    detail: str
    """What was found, in words."""
    advice: str = ""
    """What to do where it failed."""


@dataclass
class Doctor:
    """Checks one model with one kind of prompt."""

    model: Model
    prompter: Prompter
    """The prompt that puts questions to it."""
    done: dict[str, Check] = field(default_factory=dict)
    """What the checks so far found, by their names."""

    def examine(self, quick: bool = False) -> list[Check]:
        """Run the checks; a quick check leaves out the costly ones."""
        self.done = {}
        for name, procedure in CHECKS.items():
            failed = [need for need in procedure.needs if self.done[need].passed is not True]
            if failed:
                self.done[name] = Check(name, None, f"left out, because the check '{failed[0]}' did not pass")
            elif quick and procedure.costly:
                self.done[name] = Check(name, None, "left out of a quick check")
            else:
                self.done[name] = self._run(name, procedure)
        return list(self.done.values())

    def _run(self, name: str, procedure: Procedure) -> Check:
        try:
            return Check(name, True, procedure.run(self))
        except NotTried as reason:
            return Check(name, None, str(reason))
        except Failed as failure:
            return Check(name, False, str(failure), procedure.advice)
        except Exception as error:  # noqa: BLE001 whatever breaks here is what the examination is for
            return Check(name, False, reason_of(error), procedure.advice)

    # what is examined

    @cached_property
    def prompts(self) -> list[Prompt]:
        return self.prompter.many([(question, None) for question, _ in CASES])

    @cached_property
    def answers(self) -> list[list[int]]:
        return [list(self.model.tokenizer(f" {answer}", add_special_tokens=False).input_ids) for _, answer in CASES]

    @cached_property
    def ids(self) -> list[list[int]]:
        return [[*prompt.ids, *answer] for prompt, answer in zip(self.prompts, self.answers, strict=True)]

    @cached_property
    def spans(self) -> list[Spans]:
        return [
            SampleMaker(self.prompter).spans(Question.asked(question, [answer]), prompt, ids, answer)
            for (question, answer), prompt, ids in zip(CASES, self.prompts, self.answers, strict=True)
        ]

    @property
    def tolerance(self) -> float:
        """How large a difference may be, relative to the layer's largest activation."""
        allowed = TOLERANCE[self.model.network.dtype]
        return max(allowed, EAGER) if self.model.attention == "eager" else allowed

    def tracer(self, shared: Sequence[int] = ()) -> Tracer:
        """The fast way, with or without a shared prefix."""
        return Tracer(self.model, shared, SITES)

    def cut(self, case: int) -> Cut:
        return Knockout().cut(self.spans[case])

    def compare(self, ours: SiteStates, expected: SiteStates, tolerance: float) -> str:
        """The largest difference, or a failure that says where it is."""
        worst, where = self.worst(ours, expected)
        text = f"largest difference {worst:.1e} ({where})"
        if worst > tolerance:
            raise Failed(f"{text}, allowed {tolerance:.0e}")
        return text

    def worst(self, ours: SiteStates, expected: SiteStates) -> tuple[float, str]:
        """The largest difference, and where it is."""
        worst, where = 0.0, ""
        for site, states in expected.items():
            gap = self._gap(ours[site].double(), states.double())
            if not torch.isfinite(gap).all():
                raise Failed(f"{site}: not a number, or infinite")
            layer = int(gap.argmax())
            if gap[layer] >= worst:
                worst, where = float(gap[layer]), f"{site}, layer {layer}"
        return worst, where

    def _gap(self, ours: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """(layer,): how large the difference is, by the measure of the dtype."""
        gap, scale = (ours - expected).abs(), expected.abs()
        if self.model.network.dtype == torch.bfloat16:
            return gap.pow(2).sum(dim=(1, 2)).sqrt() / scale.pow(2).sum(dim=(1, 2)).sqrt().clamp(min=1e-30)
        return gap.amax(dim=(1, 2)) / scale.amax(dim=(1, 2)).clamp(min=1e-30)


def _one(doctor: Doctor, case: int, streams: Sequence[Stream], stream: int, shared: Sequence[int] = ()) -> SiteStates:
    """Read one case alone, at its last two tokens, under one of its streams."""
    end = len(doctor.ids[case])
    return doctor.tracer(shared)([streams], [Read(0, stream, end - 2), Read(0, stream, end - 1)])


def _plain(doctor: Doctor, case: int) -> SiteStates:
    end = len(doctor.ids[case])
    return read_plain(doctor.model, doctor.ids[case], [end - 2, end - 1], SITES)


def plain(doctor: Doctor) -> str:
    """One sample alone, by our masks, equals the model's own pass."""
    streams = [clean_stream(doctor.ids[0], 0)]
    return doctor.compare(_one(doctor, 0, streams, 0), _plain(doctor, 0), doctor.tolerance)


def padding(doctor: Doctor) -> str:
    """A batch of different lengths equals each sample alone."""
    rows = [[clean_stream(ids, 0)] for ids in doctor.ids]
    reads = [Read(case, 0, len(ids) - back) for case, ids in enumerate(doctor.ids) for back in (2, 1)]
    together = doctor.tracer()(rows, reads)
    alone = [_one(doctor, case, rows[case], 0) for case in range(len(rows))]
    expected = {site: torch.cat([states[site] for states in alone], dim=1) for site in SITES}
    return doctor.compare(together, expected, doctor.tolerance)


def prefix(doctor: Doctor) -> str:
    """The shared prefix, computed once, equals the full pass."""
    shared = doctor.prompter.shared_ids
    if not shared:
        return "nothing is shared"
    fast = _one(doctor, 1, [clean_stream(doctor.ids[1], len(shared))], 0, shared)
    return doctor.compare(fast, _one(doctor, 1, [clean_stream(doctor.ids[1], 0)], 0), doctor.tolerance)


def empty_knockout(doctor: Doctor) -> str:
    """A knockout that cuts nothing changes nothing."""
    ids = doctor.ids[0]
    half = len(ids) // 2
    layers = range(len(doctor.model.windows))
    # computed again from the middle on, behind the clean keys
    streams = [clean_stream(ids, 0), Stream(tuple(ids[half:]), half, NOTHING, layers)]
    return doctor.compare(_one(doctor, 0, streams, 1), _one(doctor, 0, streams, 0), doctor.tolerance)


def real_knockout(doctor: Doctor) -> str:
    """A real knockout changes the activations."""
    ids, layers = doctor.ids[0], range(len(doctor.model.windows))
    streams = [clean_stream(ids, 0), cut_stream(ids, 0, doctor.cut(0), layers)]
    try:
        doctor.compare(_one(doctor, 0, streams, 1), _one(doctor, 0, streams, 0), doctor.tolerance / 3)
    except Failed as change:
        return str(change).split(",")[0].replace("difference", "change") + ")"
    raise Failed("the exact question tokens were cut, and no activation changed")


def by_hand(doctor: Doctor) -> str:
    """The mask's cut equals the same cut in attention written out by hand, into later tokens and into the answer.

    In bfloat16 rounding is as large as a small cut, on the scale of the largest activation. So the difference is held
    against the knockout's own effect too: rounding makes a twentieth of it, one token left out about a half. In float32
    a deep model with large activations rounds more than others: without any cut, by hand and by the model's own code,
    it shows how much, and that much more is allowed.
    """
    layers, texts = range(len(doctor.model.windows)), []
    with attention_by_hand(doctor.model, NOTHING, layers):
        clean = _plain(doctor, 0)
    allowed = doctor.tolerance
    if doctor.model.network.dtype == torch.float32:
        allowed += min(doctor.worst(_plain(doctor, 0), clean)[0], ROUNDED * doctor.tolerance)
    for into in ("after", "answer"):
        cut = Knockout(into=into).cut(doctor.spans[0])
        streams = [clean_stream(doctor.ids[0], 0), cut_stream(doctor.ids[0], 0, cut, layers)]
        with attention_by_hand(doctor.model, cut, layers):
            expected = _plain(doctor, 0)
        ours = _one(doctor, 0, streams, 1)
        text = doctor.compare(ours, expected, allowed)
        share = max(_share_of_effect(ours[site], expected[site], clean[site]) for site in SITES)
        if share > OF_EFFECT:
            raise Failed(f"differs by {share:.0%} of the knockout's own effect, allowed {OF_EFFECT:.0%}")
        texts.append(f"{into}: {text}, {share:.1%} of the effect")
    return "; ".join(texts)


def _share_of_effect(ours: torch.Tensor, expected: torch.Tensor, clean: torch.Tensor) -> float:
    """The difference relative to the knockout's own effect on the states: the median over layers."""
    gap = (ours.double() - expected.double()).norm(dim=(1, 2))
    effect = (clean.double() - expected.double()).norm(dim=(1, 2))
    return float((gap / effect.clamp(min=1e-30)).median())


def conditions(doctor: Doctor) -> str:
    """What a run does, all at once: a padded batch behind the shared prefix, every condition, against each alone."""
    shared, layers = doctor.prompter.shared_ids, len(doctor.model.windows)
    rows, reads, alone = [], [], []
    for case, (ids, spans) in enumerate(zip(doctor.ids, doctor.spans, strict=True)):
        rows.append([stream_of(condition, ids, spans, len(shared), "after", layers) for condition in LAID_OUT])
        for s, condition in enumerate(LAID_OUT):
            reads.append(Read(case, s, place_of(condition, spans, "answer_last")))
            alone.append(_alone(doctor, ids, spans, condition, layers))
    together = doctor.tracer(shared)(rows, reads)
    expected = {site: torch.cat([states[site] for states in alone], dim=1) for site in SITES}
    return doctor.compare(together, expected, doctor.tolerance)


def _alone(doctor: Doctor, ids: list[int], spans: Spans, condition: Condition, layers: int) -> SiteStates:
    """One condition of one case, in a row of its own, nothing shared."""
    if condition == "answer_only":
        left = [*ids[: spans.prefix[1]], *ids[spans.cue[0] :]]
        back = len(ids) - spans.answer_last
        return read_plain(doctor.model, left, [len(left) - back], SITES)
    streams = [clean_stream(ids, 0), stream_of(condition, ids, spans, 0, "after", layers)]
    return doctor.tracer()([streams], [Read(0, 1, spans.answer_last)])


def eager(doctor: Doctor) -> str:
    """The sdpa and the eager attention code give the same under a knockout."""
    if doctor.model.source.architecture in EAGER_FAMILIES:
        raise NotTried("not tried: this family has no sdpa code")
    layers = range(len(doctor.model.windows))
    streams = [clean_stream(doctor.ids[1], 0), cut_stream(doctor.ids[1], 0, doctor.cut(1), layers)]
    states = {}
    for implementation in ("sdpa", "eager"):
        with attention_as(doctor.model, implementation):
            states[implementation] = _one(doctor, 1, streams, 1)
    return doctor.compare(states["eager"], states["sdpa"], max(doctor.tolerance, EAGER))


def window(doctor: Doctor) -> str:
    """Beyond its sliding window the model's own pass and ours agree too."""
    size = doctor.model.window
    if size is None:
        return "no sliding window"
    if size > LONGEST_WINDOW:
        raise NotTried(f"not tried: the window of {size} tokens is too long to fill here")
    ids = doctor.ids[0]
    long = (ids * (1 + (size + 16) // len(ids)))[: size + 16]
    ours = doctor.tracer()([[clean_stream(long, 0)]], [Read(0, 0, len(long) - 1)])
    return doctor.compare(ours, read_plain(doctor.model, long, [len(long) - 1], SITES), doctor.tolerance)


class Procedure(NamedTuple):
    """One check: what it does, when, and what a failure means for the person."""

    run: Callable[[Doctor], str]
    """Gives what it found in words, or raises."""
    needs: tuple[str, ...]
    """The checks it builds on; where one of them did not pass, it is left out."""
    advice: str
    costly: bool = False
    """Whether a quick check leaves it out."""


_REPORT = "Report this model with the line above: its numbers would be wrong."
_BOS = "Check the chat template and the tokenizer's add_bos setting. The BOS token is added twice, or not at all."
_SPANS = "The tokenizer changes the text. Use the model's own tokenizer files, or set prompt.style: completion."
_OTHER = "The tokenizer is probably another model's. Use the tokenizer files that came with these weights."
_MASK = "The attention code ignores the mask. Set the model's attention to sdpa or eager. "
CHECKS: dict[str, Procedure] = {
    "one_bos": Procedure(one_bos, (), _BOS),
    "spans": Procedure(spans_round_trip, ("one_bos",), _SPANS),
    "tokenizer": Procedure(own_tokenizer, (), _OTHER, costly=True),
    "plain": Procedure(plain, (), "Is the family's line in anchorscope/models/sites.py right? " + _REPORT),
    "padding": Procedure(
        padding, ("plain",), "Rows of a batch affect each other. Set traces.memory: 0.001. " + _REPORT
    ),
    "prefix": Procedure(prefix, ("plain",), "Sharing the prefix changes the numbers. Set prompt.shots: 0. " + _REPORT),
    "empty_knockout": Procedure(empty_knockout, ("plain",), "Clean keys are not reused as they should be. " + _REPORT),
    "real_knockout": Procedure(real_knockout, ("plain", "spans"), _MASK + _REPORT),
    "by_hand": Procedure(
        by_hand,
        ("plain", "spans", "empty_knockout", "real_knockout"),
        "The cut removes other attention edges than it should. " + _REPORT,
    ),
    "conditions": Procedure(
        conditions,
        ("plain", "spans", "padding", "prefix", "empty_knockout", "real_knockout", "by_hand"),
        "Conditions that share a pass affect each other. " + _REPORT,
    ),
    "eager": Procedure(
        eager, ("plain", "spans", "real_knockout"), "sdpa and eager read the mask differently. " + _REPORT, costly=True
    ),
    "window": Procedure(
        window, ("plain",), "The sliding window in our mask is not the model's. " + _REPORT, costly=True
    ),
}
