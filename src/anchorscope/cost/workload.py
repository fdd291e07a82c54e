"""What a run has to do, counted before anything is computed: questions, tokens, passes, and what a judge is asked.

Some questions of each set go through the model's own tokenizer and through the code that finds spans and lays out
passes; the first accepted answer stands for the one that is not there yet. No weights are loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappush, heappushpop
from statistics import fmean

from anchorscope.grades.judge import MAX_TOKENS, Case, filled
from anchorscope.models.load import load_tokenizer, wants_bos
from anchorscope.models.prompts import Prompter
from anchorscope.models.source import find_model
from anchorscope.probes.within import CONDITIONS as WITHIN
from anchorscope.questions.question_set import open_set
from anchorscope.questions.record import Question
from anchorscope.questions.sampling import draw
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import Sample
from anchorscope.study import DatasetSpec, ModelSpec, Study
from anchorscope.traces.passes import Passes, Patch

LOOKED_AT = 200  # questions per set whose tokens are counted
ANSWER_LIKE = "an answer of some words"  # stands for answers that are not there yet
RIGHT = (
    0.1  # share of right answers where nothing is known: small models on hard sets have 3 %, large ones 30 % and more
)


@dataclass(frozen=True)
class Workload:
    """What one model has to do on one set. Tokens are means over some of its questions."""

    model: str
    """As the study calls it."""
    dataset: str
    """Likewise."""
    available: int
    """Questions of the set, which are read to draw some of them."""
    questions: int
    """How many are asked."""
    shared: int
    """Tokens all prompts start with, computed once."""
    own: float
    """Tokens of a prompt after those."""
    answer: float
    """Tokens of an answer, with what ends it: as many as an accepted answer has."""
    traced: int
    """Samples whose activations are kept, at most."""
    slots: float
    """Tokens that are computed of a traced sample, under all conditions: the floor."""
    cut: float
    """Tokens of one knockout: from the first that loses sight of what is cut."""
    within: float
    """Tokens that are computed of a sampled answer that is read."""

    @property
    def sequence(self) -> float:
        """Tokens of a prompt and its answer."""
        return self.shared + self.own + self.answer


@dataclass(frozen=True)
class JudgeCost:
    """What a judge is asked for one model, over all datasets. Tokens are counted as four characters each."""

    model: str
    """Whose answers are judged."""
    requests: int
    """One for each answer; less where answers repeat."""
    tokens: float
    """Of all prompts."""
    replied: int
    """Tokens of all replies, at most."""
    dollars: float | None
    """By the price in the study; None where it has none."""


def judge_cost(study: Study, model: ModelSpec) -> JudgeCost | None:
    """Estimate from some questions of each set what judging one model's answers takes; None without a judge."""
    judge = study.grades.judge
    if judge is None:
        return None
    requests, tokens = 0, 0.0
    for dataset in study.datasets:
        drawn, available = _looked_at(study, dataset)
        size = min(available, dataset.sample or available)
        cases = [Case(ANSWER_LIKE, question.answers, question.question) for question in drawn]
        tokens += size * sum(len(filled(judge.prompt, case)) for case in cases) / 4 / max(1, len(cases))
        requests += size
    replied = MAX_TOKENS * requests
    dollars = (tokens * judge.price[0] + replied * judge.price[1]) / 1e6 if judge.price else None
    return JudgeCost(model.name, requests, tokens, replied, dollars)


def _looked_at(study: Study, dataset: DatasetSpec) -> tuple[list[Question], int]:
    """Some questions of a set, the first by the draw that chooses those that are asked, and how many it has."""
    drawn: list[tuple[int, int, Question]] = []  # a heap: the largest draw first, so that it can be let go
    count = 0
    for _, question in open_set(dataset, study.base).read():
        if question is not None:
            count += 1
            kept = (-draw(question.id, study.seed), count, question)
            heappush(drawn, kept) if count <= LOOKED_AT else heappushpop(drawn, kept)
    return [question for *_, question in drawn], count


def prompter_of(study: Study, model: ModelSpec) -> Prompter:
    """A model's prompts, by its own tokenizer: a minute's work where that has to be built from a GGUF file."""
    source = find_model(model, study.base)
    tokenizer = load_tokenizer(model, source)
    return Prompter(tokenizer, study.prompt_for(model), wants_bos(tokenizer, source))


def asked_of(
    study: Study,
    model: ModelSpec,
    dataset: DatasetSpec,
    layers: int,
    right: float = RIGHT,
    prompter: Prompter | None = None,
) -> Workload:
    """Count what a model has to do on a set. `right`: the share of right answers."""
    prompter = prompter or prompter_of(study, model)
    # 1. the questions, and their prompts
    drawn, available = _looked_at(study, dataset)
    questions = min(available, dataset.sample or available)
    prompts = prompter.many([(question.question, question.context) for question in drawn])
    shared = len(prompter.shared_ids)
    # 2. samples as they would be, had an accepted answer been given
    maker = SampleMaker.of(prompter, study)
    samples = [
        maker(question, question.answers[0], prompt=prompt) for question, prompt in zip(drawn, prompts, strict=True)
    ]
    usable = [sample for sample in samples if sample.spans.dropped is None]
    share = len(usable) / max(1, len(samples))
    traced = sum(
        min(most, round(questions * share * part))
        for most, part in ((study.traces.max_right, right), (study.traces.max_wrong, 1 - right))
    )
    # 3. the tokens of their passes
    passes = Passes(
        study.traces,
        prompter.shared_ids,
        layers,
        study.evidence,
        patches={s.question.id: _patches(s, study) for s in usable},
        passages={s.question.id: _another_passage(s, shared) for s in usable if s.spans.context},
    )
    rows = [[len(stream.ids) for stream in passes.streams(sample)] for sample in usable] or [[0] * len(passes.names)]
    read = [passes.names.index(condition) for condition in WITHIN if condition in passes.names]
    return Workload(
        model=model.name,
        dataset=dataset.name,
        available=available,
        questions=questions,
        shared=shared,
        own=fmean([len(prompt.ids) - shared for prompt in prompts] or [0]),
        answer=1 + fmean([len(sample.answer.answer_ids) for sample in samples] or [0]),
        traced=traced,
        slots=fmean(map(sum, rows)),
        cut=fmean(row[passes.names.index("knockout")] for row in rows),
        within=fmean(sum(row[i] for i in read) for row in rows),
    )


def _another_passage(sample: Sample, shared: int) -> list[int]:
    """A prompt whose passage differs from the first token on: as many tokens are computed as with another passage."""
    ids, start = list(sample.answer.prompt_ids), sample.spans.context[0] - shared
    return [*ids[:start], -1, *ids[start + 1 :]]


def _patches(sample: Sample, study: Study) -> dict[str, Patch]:
    """Donors that put a sample's own tokens in their place: as many tokens are computed as with others."""
    if study.evidence is None:
        return {}
    places = tuple(sample.spans.exact_question)
    return {name: Patch(places, (0,) * len(places)) for name in [*study.evidence.patched, "patched_control"]}
