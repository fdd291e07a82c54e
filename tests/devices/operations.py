"""Everything that anchorscope does with a loaded model, each as one function that gives numbers.

The same operation on another device, or over several, has to give the same numbers. Each takes a model and a Prompter
and gives arrays by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope import PromptSpec, cut, doctor, trace
from anchorscope.answers.generate import Generator
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter, closing_id
from anchorscope.questions.record import Question
from anchorscope.spans.asked import Asked
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import Sample
from anchorscope.study import EvidenceSpec, TraceSpec
from anchorscope.study.terms import CONDITIONS, SITES
from anchorscope.traces.knockout import Knockout
from anchorscope.traces.layout import clean_stream, cut_stream
from anchorscope.traces.listening import Listening
from anchorscope.traces.mass import attention_mass
from anchorscope.traces.passes import Passes, Patch
from anchorscope.traces.saliency import saliencies
from anchorscope.traces.sweep import trace_samples
from anchorscope.traces.tracer import Read, Tracer

Arrays = dict[str, NDArray[Any]]
ASKED = (
    ("Who wrote the play Hamlet?", "William Shakespeare"),
    ("Which planet of the solar system is the closest to the Sun?", "It is Mercury"),
    ("What is the capital of the country whose largest city is Sydney?", "Canberra"),
)
LONGEST, TOGETHER = 6, 512


@dataclass(frozen=True)
class Patient:
    """A model, and three questions with answers as it reads them."""

    model: Model
    """The model."""

    @cached_property
    def prompter(self) -> Prompter:
        """Puts questions to it."""
        return Prompter(self.model.tokenizer, PromptSpec(shots=2), self.model.wants_bos)

    @cached_property
    def prompts(self) -> list[list[int]]:
        """The questions."""
        return [prompt.ids for prompt in self.prompter.many([(question, None) for question, _ in ASKED])]

    @cached_property
    def samples(self) -> list[Sample]:
        """The questions with their answers."""
        maker = SampleMaker(self.prompter)
        return [maker(Question.asked(question, [answer]), answer) for question, answer in ASKED]

    @cached_property
    def generator(self) -> Generator:
        """Writes answers."""
        return Generator(self.model, self.prompter.shared_ids, LONGEST, TOGETHER)

    def tracer(self) -> Tracer:
        """Reads all sites."""
        return Tracer(self.model, self.prompter.shared_ids, SITES)

    def ids(self, sample: Sample) -> list[int]:
        """All tokens of a sample."""
        return [*self.prompter.shared_ids, *sample.answer.prompt_ids, *sample.answer.answer_ids]


def answers(patient: Patient) -> Arrays:
    """Greedy answers, their log-probabilities, and the states that are heard while they are written."""
    with Listening(patient.model, SITES) as heard:
        written = patient.generator(patient.prompts, heard)
    states = {
        f"{row}/{site}": values.double().numpy()
        for row in range(len(ASKED))
        for site, values in heard.states(row).items()
    }
    return _written(written) | states


def sampled(patient: Patient) -> Arrays:
    """Answers drawn at a temperature."""
    keys = [str(i) for i in range(len(ASKED))]
    drawn = patient.generator.sample(patient.prompts, 3, 0.8, keys)
    return _written([answer for several in drawn for answer in several])


def _written(written: list[Any]) -> Arrays:
    ids = np.concatenate([np.array([*answer.ids, -1]) for answer in written])
    return {"tokens": ids, "log-probabilities": np.concatenate([np.array(answer.logprobs) for answer in written])}


def given(patient: Patient) -> Arrays:
    """The log-probabilities of given answers."""
    spoken = [sample.answer.answer_ids for sample in patient.samples]
    return {"log-probabilities": np.concatenate(patient.generator.score(patient.prompts, spoken))}


def traces(patient: Patient) -> Arrays:
    """States under every condition, with donors, the mirror and the support of answers."""
    tracer, evidence = patient.tracer(), EvidenceSpec(donors=2)
    spec = TraceSpec(conditions=[*CONDITIONS], sites=[*SITES], positions=["answer_last", "final"])
    patches: dict[str, dict[str, Patch]] = {}
    for sample in patient.samples:
        places = tuple(sample.spans.exact_question)
        patches[sample.question.id] = {
            name: Patch(places, tuple(40 + number + place for place in range(len(places))))
            for number, name in enumerate([*evidence.patched, "patched_control"])
        }
    passes = Passes(
        spec,
        tracer.shared_ids,
        tracer.layers,
        evidence,
        closing=closing_id(patient.model.tokenizer, patient.prompter.spec.style),
        bos=int(patient.model.wants_bos),
        patches=patches,
    )
    read = trace_samples(tracer, patient.samples, spec, passes)
    return {name: values.double().numpy() for name, values in read.items()}


def map_of_layers(patient: Patient) -> Arrays:
    """Cuts that hold in one layer each, and are there from that layer on."""
    tracer = patient.tracer()
    rows, reads = [], []
    for number, sample in enumerate(patient.samples):
        ids, edges = patient.ids(sample), Knockout("exact_question").cut(sample.spans)
        shared = len(tracer.shared_ids)
        rows.append([clean_stream(ids, shared)])
        rows[-1] += [cut_stream(ids, shared, edges, [layer]) for layer in range(tracer.layers)]
        reads += [Read(number, stream, len(ids) - 1) for stream in range(len(rows[-1]))]
    return {site: states.double().numpy() for site, states in tracer(rows, reads).items()}


def saliency(patient: Patient) -> Arrays:
    """Of a probe's logit, and of the answer's log-likelihood."""
    width, last = patient.model.source.width, patient.model.source.layers - 1
    weights = np.random.default_rng(0).normal(size=(len(ASKED), width)).astype(np.float32)
    places = [sample.spans.answer_last for sample in patient.samples]
    measured: Arrays = {}
    for of in ("logit", "loss"):
        measured[of] = saliencies(
            patient.model, patient.prompter.shared_ids, patient.samples, places, last - 1, "mlp", weights, of
        )
    return measured


def mass(patient: Patient) -> Arrays:
    """The attention that knockouts take away."""
    measured = {}
    for number, sample in enumerate(patient.samples):
        cuts = [Knockout(name).cut(sample.spans) for name in ("exact_question", "control_question")]
        measured[str(number)] = attention_mass(patient.model, patient.ids(sample)[: sample.spans.answer_last + 1], cuts)
    return measured


def examined(patient: Patient) -> Arrays:
    """What the self-test says: 1 for each check that passed, 0 for one that was left out."""
    checks = doctor(patient.model)
    failed = [f"{check.name}: {check.detail}" for check in checks if check.passed is False]
    if failed:
        raise AssertionError("; ".join(failed))
    return {check.name: np.array(float(check.passed is True)) for check in checks}


def traced(patient: Patient) -> Arrays:
    """`anchorscope.trace`."""
    sample = trace(patient.model, *ASKED[0])
    return {name: np.asarray(values) for name, values in sample.states.items()}


def cut_by_hand(patient: Patient) -> Arrays:
    """`anchorscope.cut`, in some layers and for some heads."""
    result = cut(
        patient.model, Asked(*ASKED[0]), "exact_question", layers=[0, 1], heads=[1], read=["answer_last"], sites=SITES
    )
    passes = (("clean", result.clean), ("cut", result.cut))
    read = {f"{name}/{site}": states.double().numpy() for name, one in passes for site, states in one.states.items()}
    return read | {"clean": result.clean.logprobs.numpy(), "cut": result.cut.logprobs.numpy()}


OPERATIONS: Mapping[str, Callable[[Patient], Arrays]] = {
    "answers, with their states": answers,
    "sampled answers": sampled,
    "given answers": given,
    "traces": traces,
    "map of layers": map_of_layers,
    "saliency": saliency,
    "attention mass": mass,
    "doctor": examined,
    "trace": traced,
    "cut": cut_by_hand,
}


def largest_difference(ours: Arrays, expected: Arrays) -> float:
    """Relative to the largest number of each array; both must have the same arrays."""
    if ours.keys() != expected.keys():
        raise AssertionError(f"other arrays: {sorted(ours.keys() ^ expected.keys())}")
    differences = [0.0]
    for name, wanted in expected.items():
        if ours[name].shape != wanted.shape:
            raise AssertionError(f"{name}: {ours[name].shape}, not {wanted.shape}")
        finite = np.isfinite(wanted)
        if not np.array_equal(finite, np.isfinite(ours[name])):
            return float("inf")
        if finite.any():
            scale = float(np.abs(wanted[finite]).max()) or 1.0
            differences.append(float(np.abs(ours[name][finite] - wanted[finite]).max()) / scale)
    return max(differences)
