"""The workload of a run, counted before anything is computed: questions, tokens, passes and requests to a judge.

Some questions of each dataset go through the model's own tokenizer and through the code that finds spans and plans
passes. The first accepted answer stands for the answer that does not exist yet. No weights are loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappush, heappushpop
from statistics import fmean

from anchorscope.grades.judge import Case, filled
from anchorscope.models.load import load_tokenizer, wants_bos
from anchorscope.models.prompts import Prompter
from anchorscope.models.source import find_model
from anchorscope.questions.question_set import open_set
from anchorscope.questions.record import Question
from anchorscope.questions.sampling import draw
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import Sample
from anchorscope.study import DatasetSpec, ModelSpec, Study
from anchorscope.study.terms import SEVERAL
from anchorscope.traces.passes import Passes, Patch

LOOKED_AT = 200  # questions per dataset whose tokens are counted
ANSWER_LIKE = "an answer of some words"  # stands for answers that do not exist yet
RIGHT = 0.1  # assumed share of right answers: small models have 3 % on hard datasets, large ones 30 % and more


@dataclass(frozen=True)
class Workload:
    """The workload of one model on one dataset. Numbers of tokens are means over some of its questions."""

    model: str
    dataset: str
    available: int
    """Number of questions in the dataset, all of which are read."""
    questions: int
    shared: int
    """Number of tokens at the start of all prompts, which are computed once."""
    own: float
    """Number of tokens of a prompt after the shared ones."""
    answer: float
    """Number of tokens of an answer and its end, taken from the accepted answer."""
    traced: int
    """Maximum number of samples whose activations are kept."""
    slots: float
    """Minimum number of tokens computed per traced sample, over all conditions."""
    within: float
    """Number of tokens computed per sampled answer that is read."""
    judge: float = 0.0
    """Number of tokens that a judge reads per answer, where a token is counted as four characters; 0 without one."""

    @property
    def sequence(self) -> float:
        """Number of tokens of a prompt and its answer."""
        return self.shared + self.own + self.answer


def _looked_at(study: Study, dataset: DatasetSpec) -> tuple[list[Question], int]:
    """Some questions of a dataset, the first in the order in which questions are drawn, and its number of questions."""
    drawn: list[tuple[int, int, Question]] = []  # a heap with the largest draw first, so that it can be dropped
    count = 0
    for _, question in open_set(dataset, study.base).read():
        if question is not None:
            count += 1
            entry = (-draw(question.id, study.seed), count, question)
            heappush(drawn, entry) if count <= LOOKED_AT else heappushpop(drawn, entry)
    return [question for *_, question in drawn], count


def prompter_of(study: Study, model: ModelSpec) -> Prompter:
    """The prompter of a model, with its own tokenizer. Building one from a GGUF file takes a minute."""
    source = find_model(model, study.base)
    tokenizer = load_tokenizer(model, source)
    return Prompter(tokenizer, study.prompt_for(model), wants_bos(tokenizer, source))


def workload_of(
    study: Study,
    model: ModelSpec,
    dataset: DatasetSpec,
    layers: int,
    right: float = RIGHT,
    prompter: Prompter | None = None,
) -> Workload:
    """Count the workload of a model on a dataset. `right`: the assumed share of right answers."""
    prompter = prompter or prompter_of(study, model)
    # 1. the questions, and their prompts
    drawn, available = _looked_at(study, dataset)
    questions = min(available, dataset.sample or available)
    if dataset.crossed is not None:  # each of two questions with both answers
        questions, right = min(4 * dataset.crossed, 2 * questions), 0.5
    prompts = prompter.many([(question.question, question.context) for question in drawn])
    shared = len(prompter.shared_ids)
    # 2. samples as they would be with an accepted answer
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
    read = [passes.names.index(condition) for condition in SEVERAL if condition in passes.names]
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
        within=fmean(sum(row[i] for i in read) for row in rows),
        judge=fmean([_judged(question, study) for question in drawn] or [0]),
    )


def _judged(question: Question, study: Study) -> float:
    """Number of tokens of a judge's prompt for a question."""
    judge = study.grades.judge
    return len(filled(judge.prompt, Case(ANSWER_LIKE, question.answers, question.question))) / 4 if judge else 0.0


def _another_passage(sample: Sample, shared: int) -> list[int]:
    """A prompt whose passage differs from its first token on, so that as many tokens are computed as in a run."""
    ids, start = list(sample.answer.prompt_ids), sample.spans.context[0] - shared
    return [*ids[:start], -1, *ids[start + 1 :]]


def _patches(sample: Sample, study: Study) -> dict[str, Patch]:
    """Placeholder donors for a sample's exact tokens, so that as many tokens are computed as in a run."""
    if study.evidence is None:
        return {}
    places = tuple(sample.spans.exact_question)
    return {name: Patch(places, (0,) * len(places)) for name in [*study.evidence.patched, "patched_control"]}
