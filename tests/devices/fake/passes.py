"""Passes at a published model's real size: what they are made of, and what they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from anchorscope.answers.generate import Generator, _Steps
from anchorscope.answers.record import Answer
from anchorscope.cost.model_shape import shape_of
from anchorscope.grades.record import Graded
from anchorscope.models.load import Model
from anchorscope.questions.record import Question
from anchorscope.spans.record import Spans
from anchorscope.spans.samples import Sample
from anchorscope.study import EvidenceSpec, TraceSpec
from anchorscope.traces.budget import MARGIN
from anchorscope.traces.listening import Listening
from anchorscope.traces.passes import Passes, Patch
from anchorscope.traces.saliency import saliencies
from anchorscope.traces.sweep import budget_of, trace_samples
from anchorscope.traces.tracer import Read, Tracer
from devices.fake import Alive, PromptSize

EXACT = 5
LONGEST = 24


def made_up_sample(number: int, size: PromptSize) -> Sample:
    """A sample whose tokens mean nothing."""
    random = np.random.default_rng(number)
    prompt, answer = (random.integers(3, 250, count).tolist() for count in (size.own, size.answer))
    begin = size.shared + size.own
    end = begin + size.answer
    spans: dict[str, Any] = {name: [] for name in Spans.__dataclass_fields__}
    spans |= {"id": str(number), "dropped": None, "answer": [begin, end], "final": end - 1, "prompt_last": begin - 1}
    spans |= {"prefix": [0, size.shared], "question": [size.shared, begin - 2], "cue": [begin - 2, begin]}
    spans["exact_question"] = [size.shared + 2 * place for place in range(EXACT)]
    others = [size.shared + 2 * place + 1 for place in range(EXACT)]
    for name in ("question", "random"):
        spans |= {f"control_{name}_exact": spans["exact_question"], f"control_{name}_control": others}
    spans |= {"exact_answer": [end - 2, end - 1], "answer_last": end - 1}
    said = Answer(str(number), None, prompt, answer, [0.0] * size.answer, "", True, True, None)
    grade = Graded(str(number), "right", "grader", None, None, None, None)
    return Sample(Question.asked(str(number), ["a"]), said, grade, Spans(**spans))


@dataclass(frozen=True)
class FakePasses:
    """The passes of a study over some samples, on a model without numbers."""

    model: Model
    """Made by `fake_model`."""
    count: int = 16
    """Samples."""
    evidence: bool = True
    """Whether donors, the mirror and the support of answers go through too."""
    size: PromptSize = PromptSize()  # noqa: RUF009 — a value
    """Of each sample."""
    spec: TraceSpec = TraceSpec()  # noqa: RUF009 — a value
    """Which conditions, of which sites."""

    @cached_property
    def samples(self) -> list[Sample]:
        """All samples."""
        return [made_up_sample(number, self.size) for number in range(self.count)]

    @cached_property
    def shared(self) -> list[int]:
        """The tokens that all begin with."""
        return list(range(3, 3 + self.size.shared))

    @cached_property
    def tracer(self) -> Tracer:
        """Reads the site that studies read."""
        return Tracer(self.model, self.shared, self.spec.sites)

    @cached_property
    def passes(self) -> Passes:
        """What is computed of each sample."""
        evidence = EvidenceSpec() if self.evidence else None
        patches: dict[str, dict[str, Patch]] = {}
        for sample in self.samples if evidence else ():
            places = tuple(sample.spans.exact_question)
            names = [*evidence.patched, "patched_control"] if evidence else []
            patches[sample.question.id] = {name: Patch(places, (7,) * len(places)) for name in names}
        return Passes(self.spec, self.shared, self.tracer.layers, evidence, closing=9, bos=0, patches=patches)

    @property
    def predicted(self) -> float:
        """Bytes that the formula says a batch of all samples takes, without its margin for holes."""
        rows = [self.passes.streams(sample) for sample in self.samples]
        slots = max(sum(len(stream.ids) for stream in row) for row in rows)
        return self.count * budget_of(self.tracer, self.passes, rows).cost(slots) / MARGIN

    @property
    def predicted_of_answers(self) -> float:
        """Bytes that the formula says all prompts take that are answered together."""
        shape = shape_of(self.model.network.config, 2)
        return shape.answering(self.count, self.size.shared, self.size.own, LONGEST)

    @property
    def floor(self) -> float:
        """FLOPs that no exact way can do without: of each distinct token and condition, with the keys that it sees."""
        shape = shape_of(self.model.network.config, 2)
        ranges = [range(self.size.shared)]
        ranges += [range(s.start, s.end) for sample in self.samples for s in self.passes.streams(sample)]
        return sum(shape.flops(1, place + 1) for places in ranges for place in places)

    # --- what goes through

    def traces(self) -> None:
        """All conditions of the samples."""
        trace_samples(self.tracer, self.samples, self.spec, self.passes)

    def bare(self) -> None:
        """The samples themselves, as one plain pass with nothing shared and nothing cut would have them."""
        ids = [[*self.shared, *s.answer.prompt_ids, *s.answer.answer_ids] for s in self.samples]
        width = max(map(len, ids))
        rows = torch.tensor([row + [0] * (width - len(row)) for row in ids], device=self.model.device)
        self.model.network.get_decoder()(rows, use_cache=False)

    def answers(self) -> None:
        """The prompts, and one token more, with the states that are heard on the way.

        A whole generation cannot be followed: which rows have ended is decided by numbers.
        """
        generator = Generator(self.model, self.shared, LONGEST, 8192)
        rows = [sample.answer.prompt_ids for sample in self.samples]
        slots = {row: row for row in range(len(rows))}
        with Listening(self.model, self.spec.sites) as heard:
            heard.start(range(len(rows)))
            ids, mask, positions = generator._lay_out(rows)
            steps = _Steps(generator, generator._cache(len(rows), ids.shape[1] + LONGEST), mask)
            for _ in range(2):
                logits = steps.forward(ids, positions)
                heard.step(slots)
                ids, positions = logits.max(dim=-1).indices[:, None], positions[:, -1:] + 1
                steps.mask = torch.cat([steps.mask, steps.mask.new_ones(len(rows), 1)], dim=1)
            heard.end()

    def saliency(self) -> None:
        """Of a probe's logit at the middle layer, and of the answer's log-likelihood."""
        layers, width = self.model.source.layers, self.model.source.width
        places = [sample.spans.answer_last for sample in self.samples]
        weights = np.zeros((self.count, width), np.float32)
        with torch.enable_grad():
            for of in ("logit", "loss"):
                saliencies(self.model, self.shared, self.samples, places, layers // 2, "mlp", weights, of)


THROUGH: dict[str, Callable[[FakePasses], None]] = {
    "traces": FakePasses.traces,
    "prompts and one token, heard": FakePasses.answers,
}
"""What goes through on GPUs. `saliency` goes backward, for which there must be a real one, or the CPU."""


def peak_of(passes: FakePasses) -> Counter[str]:
    """The most bytes that one batch of all samples takes on each device, beside the weights and the shared tokens'."""
    tracer, rows = passes.tracer, [passes.passes.streams(sample) for sample in passes.samples]
    reads = [
        Read(i, kept.stream, passes.passes.place(kept.name, sample.spans, kept.position))
        for kept in passes.passes.kept
        for i, sample in enumerate(passes.samples)
    ]
    said = [token for i, sample in enumerate(passes.samples) for token in passes.passes.said(sample, i)]
    _ = tracer._prefix
    alive = Alive(passes.model.network)
    with alive:
        tracer.with_support(rows, reads, said) if said else tracer(rows, reads)
    return alive.peak


def peak_of_answers(passes: FakePasses) -> Counter[str]:
    """The most bytes that all prompts take which are answered together, beside the weights."""
    alive = Alive(passes.model.network)
    with alive:
        passes.answers()
    return alive.peak


def flops_of(act: Callable[[], None]) -> int:
    """Of products and of attention."""
    with FlopCounterMode(display=False) as counted:
        act()
    return int(counted.get_total_flops())
