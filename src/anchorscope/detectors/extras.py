"""What detectors need of traced samples beyond their traces, in one pass each.

With the clean pass go the knockout, for support; the question whether the answer is true, put behind it; and streams of
one token: the token that is read, with more or less attention to the question's exact tokens, to the answer's, or to
other tokens of the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from anchorscope.detectors.catalogue import BETAS, raised
from anchorscope.errors import ModelError
from anchorscope.models.batches import plan_batches
from anchorscope.models.heap import give_back
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter, answer_ids
from anchorscope.questions.record import Question
from anchorscope.spans.find import find_spans
from anchorscope.spans.record import Spans
from anchorscope.spans.samples import Sample
from anchorscope.study.terms import Into, Site
from anchorscope.traces.budget import ENOUGH, make_budget
from anchorscope.traces.knockout import Knockout
from anchorscope.traces.layout import Stream, clean_stream, cut_stream
from anchorscope.traces.reweighted import reweighted_stream
from anchorscope.traces.tracer import Read, Tracer

ASKED = "\nIs this answer true or false? It is"
SAYS = (" true", " false")
SPANS = ("question", "answer", "control")


class Extras(NamedTuple):
    """What was read of some samples."""

    states: dict[str, torch.Tensor]
    """By name, (layer, sample, width)."""
    support: list[float]
    """Of each sample: log P(answer | clean) − log P(answer | knockout)."""
    p_true: list[float]
    """Of each sample: log P(true) − log P(false), asked behind the answer."""


def extras_of(tracer: Tracer, samples: Sequence[Sample], site: Site, into: Into, closing: int, memory: float) -> Extras:
    """Read samples: the mean over the answer's tokens, the token behind it, raised attention, support and P(True)."""
    tokenizer = tracer.model.tokenizer
    asked: list[int] = tokenizer(ASKED, add_special_tokens=False).input_ids
    says = [int(tokenizer(word, add_special_tokens=False).input_ids[0]) for word in SAYS]
    raisings = [(span, beta) for span in SPANS for beta in BETAS]
    names = [f"clean/{site}/answer_mean", f"clean/{site}/after_answer"]
    names += [raised(span, beta, site) for span, beta in raisings]
    rows = [_streams(tracer, sample, into, closing, asked, raisings) for sample in samples]
    width = tracer.model.network.config.get_text_config().hidden_size
    states = {name: torch.empty(tracer.layers, len(samples), width, dtype=torch.float32) for name in names}
    support, truths = [0.0] * len(samples), [0.0] * len(samples)
    budget = make_budget(tracer.model, memory, len(tracer.shared_ids), len(names) + 8, predicted=10)
    lengths = [sum(len(stream.ids) for stream in row) for row in rows]
    for batch in plan_batches(lengths, budget.memory, budget.cost, enough=ENOUGH):
        # 1. what is read: single places first, then every token of the answer
        spans = [samples[row].spans for row in batch]
        single = [Read(i, 0, each.after_answer) for i, each in enumerate(spans)]
        single += [Read(i, 3 + k, each.answer_last) for k in range(len(raisings)) for i, each in enumerate(spans)]
        tokens = [[Read(i, 0, place) for place in range(*each.answer)] for i, each in enumerate(spans)]
        said = []
        for i, row in enumerate(batch):
            behind = Read(i, 2, spans[i].answer[1] + len(asked) - 1)
            said.append([*((behind, word) for word in says), *_knocked_out(samples[row], i)])
        made, logprobs = tracer.with_support(
            [rows[row] for row in batch],
            [*single, *(read for some in tokens for read in some)],
            [each for some in said for each in some],
        )
        # 2. where it goes
        read = made[site].float()  # (layer, read, width)
        for name, block in zip(names[1:], torch.split(read[:, : len(single)], len(batch), dim=1), strict=True):
            states[name][:, batch] = block
        answers = torch.split(read[:, len(single) :], [len(some) for some in tokens], dim=1)
        for row, own, values in zip(batch, answers, torch.split(logprobs, [len(s) for s in said]), strict=True):
            states[names[0]][:, row] = own.mean(dim=1)
            truths[row] = float(values[0] - values[1])
            support[row] = sum(samples[row].answer.logprobs[: len(values) - 2]) - float(values[2:].sum())
        del made, read
        give_back()
    return Extras(states, support, truths)


def _streams(
    tracer: Tracer,
    sample: Sample,
    into: Into,
    closing: int,
    asked: Sequence[int],
    raisings: Sequence[tuple[str, float]],
) -> list[Stream]:
    """The clean one, the knockout, what is asked behind the answer, and one for each way to raise attention."""
    shared, spans = len(tracer.shared_ids), sample.spans
    ids = [*tracer.shared_ids, *sample.answer.prompt_ids, *sample.answer.answer_ids, closing]
    own = ids[: spans.answer_last + 1]
    streams = [
        clean_stream(ids, shared),
        cut_stream(own, shared, Knockout("exact_question", into).cut(spans), range(tracer.layers)),
        Stream(tuple(asked), spans.answer[1]),
    ]
    keys = {
        "question": spans.exact_question,
        "answer": list(range(spans.answer[0], spans.answer_last)),
        "control": spans.control_question_control,
    }
    for span, beta in raisings:
        streams.append(reweighted_stream(own, shared, spans.answer_last, keys[span], beta, tracer.layers))
    return streams


def _knocked_out(sample: Sample, number: int) -> list[tuple[Read, int]]:
    """The answer's tokens up to the last exact one, each with the place that predicts it under the knockout."""
    first, last = sample.spans.answer[0], sample.spans.answer_last
    tokens = sample.answer.answer_ids[: last - first + 1]
    return [(Read(number, 1, place), token) for place, token in enumerate(tokens, first - 1)]


class OtherRead(NamedTuple):
    """What another model made of some samples."""

    states: dict[str, torch.Tensor]
    """By name, (layer, sample, width)."""
    found: list[bool]
    """Whether the exact answer was found among its tokens."""


def other_states(
    tracer: Tracer, prompter: Prompter, texts: Sequence[tuple[Question, str]], site: Site, memory: float
) -> OtherRead:
    """Another model reads the same questions and answers: its states at the prompt's and the answer's last token."""
    model, shared = tracer.model, len(tracer.shared_ids)
    ids, places, found = [], [], []
    for question, answer in texts:
        prompt = prompter(question.question, question.context)
        tokens = answer_ids(prompter, prompt, answer) or prompt.ids[-1:]
        spans = _spans(model, prompter, question, answer)
        found.append(spans is not None)
        last = spans.answer_last if spans is not None else len(prompt.ids) + len(tokens) - 1
        ids.append([*prompt.ids, *tokens])
        places.append((len(prompt.ids) - 1, last))
    width = model.network.config.get_text_config().hidden_size
    names = [f"other/{site}/prompt_last", f"other/{site}/answer_last"]
    states = {name: torch.empty(tracer.layers, len(texts), width) for name in names}
    budget = make_budget(model, memory, shared, 2)
    for batch in plan_batches([len(each) - shared for each in ids], budget.memory, budget.cost, enough=ENOUGH):
        reads = [Read(i, 0, places[row][k]) for k in range(2) for i, row in enumerate(batch)]
        made = tracer([[clean_stream(ids[row], shared)] for row in batch], reads)[site].float()
        for name, block in zip(names, torch.split(made, len(batch), dim=1), strict=True):
            states[name][:, batch] = block
        give_back()
    return OtherRead(states, found)


def _spans(model: Model, prompter: Prompter, question: Question, answer: str) -> Spans | None:
    """The spans of an answer among a model's tokens; None where they cannot be found."""
    prompt = prompter(question.question, question.context)
    try:
        spans: Any = find_spans(
            prompt, answer_ids(prompter, prompt, answer), answer, question, model.tokenizer, "content"
        )
    except ModelError:
        return None
    return None if spans.dropped is not None else spans
