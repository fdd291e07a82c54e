"""Samples with passages, and what each cut of a passage is by definition."""

from __future__ import annotations

from collections.abc import Sequence

from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter
from anchorscope.questions.record import Question
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import Sample
from anchorscope.study import PromptSpec, SpansSpec, TraceSpec
from anchorscope.study.terms import PASSAGE, Condition, Into
from anchorscope.traces.byhand import attention_by_hand
from anchorscope.traces.conditions import CUTS
from anchorscope.traces.knockout import Cut
from anchorscope.traces.passes import Passes
from anchorscope.traces.tracer import Read, Tracer, read_plain

ASKED = (
    ("Which river is near Hill?", "Danube", "The Danube is near Hill. It is long. Nobody swims there."),
    ("Who wrote Hamlet?", "Ann", "Will Shakespeare lived then. He wrote Hamlet. Ann did not."),
    ("Which planet is closest?", "Mars", "Mercury is closest to the Sun"),  # one sentence, which holds no answer
)
CUT_PASSAGES = tuple(name for name in PASSAGE if name in CUTS)
INTO: tuple[Into, ...] = ("after", "answer")


def samples_of(model: Model) -> tuple[Prompter, list[Sample]]:
    """Three questions with passages."""
    prompter = Prompter(model.tokenizer, PromptSpec(shots=1), model.wants_bos)
    maker = SampleMaker(prompter, SpansSpec(controls=["control_question", "control_random", "control_evidence"]))
    return prompter, [maker(Question.asked(asked, [answer], passage), answer) for asked, answer, passage in ASKED]


def cut_by_definition(condition: Condition, sample: Sample, into: Into) -> Cut:
    """The edges that a condition cuts, token by token: also those within a passage that nobody sees."""
    spans = sample.spans
    passage = [(token, token) for token in range(*spans.context)]
    pairs = list(zip(spans.control_evidence_exact, spans.control_evidence_control, strict=True))
    keys: dict[Condition, list[tuple[int, int]]] = {
        "knockout_context": passage,
        "knockout_both": [*passage, *((token, token) for token in spans.exact_question)],
        "knockout_evidence": [(token, token) for token in spans.evidence],
        "matched_evidence": [(exact, max(exact, other)) for exact, other in pairs],
        "control_evidence": [(other, max(exact, other)) for exact, other in pairs],
    }
    begin = spans.answer[0] if into == "answer" else 0
    return Cut(tuple(key for key, _ in keys[condition]), tuple(max(begin, last + 1) for _, last in keys[condition]))


def differences_by_hand(model: Model) -> float:
    """The largest difference of any cut from attention by hand, relative to the layer's largest activation."""
    prompter, samples = samples_of(model)
    worst = 0.0
    for into in INTO:
        spec = TraceSpec(conditions=["clean", "knockout", *CUT_PASSAGES], into=into)
        tracer = Tracer(model, prompter.shared_ids, spec.sites)
        passes = Passes(spec, prompter.shared_ids, tracer.layers)
        reads = [
            Read(number, stream, sample.spans.answer_last)
            for stream in range(len(passes.names))
            for number, sample in enumerate(samples)
        ]
        found = tracer([passes.streams(sample) for sample in samples], reads)["mlp"]
        for number, sample in enumerate(samples):
            ids = [*prompter.shared_ids, *sample.answer.prompt_ids, *sample.answer.answer_ids]
            for condition in CUT_PASSAGES:
                with attention_by_hand(model, cut_by_definition(condition, sample, into), range(tracer.layers)):
                    expected = read_plain(model, ids, [sample.spans.answer_last], ("mlp",))["mlp"]
                place = len(samples) * passes.names.index(condition) + number
                scale = expected.abs().amax(dim=(1, 2), keepdim=True)
                worst = max(worst, float(((found[:, place : place + 1] - expected).abs() / scale).max()))
    return max(worst, difference_of_swapped(model, prompter, samples))


def difference_of_swapped(model: Model, prompter: Prompter, samples: Sequence[Sample]) -> float:
    """Of answers whose passage was swapped for the next sample's, from a plain pass over that prompt."""
    others = {
        sample.question.id: prompter(sample.question.question, other.question.context).ids[len(prompter.shared_ids) :]
        for sample, other in zip(samples, [*samples[1:], samples[0]], strict=True)
    }
    spec = TraceSpec(conditions=["clean", "knockout", "swapped_context"])
    tracer = Tracer(model, prompter.shared_ids, spec.sites)
    passes = Passes(spec, prompter.shared_ids, tracer.layers, passages=others)
    reads = [
        Read(number, 2, passes.place("swapped_context", sample.spans, "answer_last"))
        for number, sample in enumerate(samples)
    ]
    found = tracer([passes.streams(sample) for sample in samples], reads)["mlp"]
    worst = 0.0
    for number, sample in enumerate(samples):
        other, spans = others[sample.question.id], sample.spans
        ids = [*prompter.shared_ids, *other, *sample.answer.answer_ids]
        place = len(prompter.shared_ids) + len(other) + spans.answer_last - spans.answer[0]
        expected = read_plain(model, ids, [place], ("mlp",))["mlp"]
        scale = expected.abs().amax(dim=(1, 2), keepdim=True)
        worst = max(worst, float(((found[:, number : number + 1] - expected).abs() / scale).max()))
    return worst
