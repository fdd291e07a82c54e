"""What a run will cost, in tokens, before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from anchorscope.grades.judge import MAX_TOKENS, Case, filled
from anchorscope.models.load import load_tokenizer, wants_bos
from anchorscope.models.prompts import Prompter
from anchorscope.models.source import find_model
from anchorscope.questions.record import Question
from anchorscope.questions.stage import open_set
from anchorscope.study import DatasetSpec, ModelSpec, Study

LOOKED_AT = 200  # questions per set whose tokens are counted
ANSWER_LIKE = "an answer of some words"  # stands for answers that are not there yet


@dataclass(frozen=True)
class Cost:
    """One model on one dataset."""

    model: str
    """As the study calls it."""
    dataset: str
    """Likewise."""
    questions: int
    """How many are asked."""
    shared_tokens: int
    """Tokens all prompts start with, computed once."""
    tokens_per_question: float
    """Mean tokens of a prompt after those."""
    answer_tokens: int
    """At most, per question."""

    @property
    def tokens(self) -> float:
        """Prompt tokens to compute, at most, with answers."""
        return self.shared_tokens + self.questions * (self.tokens_per_question + self.answer_tokens)


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
        some, size = _looked_at(study, dataset)
        cases = [Case(ANSWER_LIKE, question.answers, question.question) for question in some]
        tokens += size * sum(len(filled(judge.prompt, case)) for case in cases) / 4 / max(1, len(cases))
        requests += size
    replied = MAX_TOKENS * requests
    dollars = (tokens * judge.price[0] + replied * judge.price[1]) / 1e6 if judge.price else None
    return JudgeCost(model.name, requests, tokens, replied, dollars)


def _looked_at(study: Study, dataset: DatasetSpec) -> tuple[list[Question], int]:
    """Some questions of a set, and how many will be asked."""
    questions = open_set(dataset, study.base)
    count = sum(1 for _, question in questions.read() if question is not None)
    some = [question for _, question in islice(questions.read(), LOOKED_AT) if question is not None]
    return some, min(count, dataset.sample or count)


def cost_of(study: Study, model: ModelSpec) -> list[Cost]:
    """Count the tokens of some questions of each set with the model's own tokenizer; no weights are loaded."""
    source = find_model(model, study.base)
    tokenizer = load_tokenizer(model, source)
    prompter = Prompter(tokenizer, study.prompt_for(model), wants_bos(tokenizer, source))
    costs = []
    for dataset in study.datasets:
        some, size = _looked_at(study, dataset)
        prompts = prompter.many([(question.question, question.context) for question in some])
        own = sum(len(prompt.ids) - len(prompter.shared_ids) for prompt in prompts) / max(1, len(prompts))
        shared = len(prompter.shared_ids)
        costs.append(Cost(model.name, dataset.name, size, shared, own, study.answers.max_new_tokens))
    return costs
