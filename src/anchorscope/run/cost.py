"""What a run will cost, in tokens, before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from anchorscope.models.load import load_tokenizer, wants_bos
from anchorscope.models.prompts import Prompter
from anchorscope.models.source import find_model
from anchorscope.questions.stage import open_set
from anchorscope.study import ModelSpec, Study

LOOKED_AT = 200  # questions per set whose tokens are counted


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


def cost_of(study: Study, model: ModelSpec) -> list[Cost]:
    """Count the tokens of some questions of each set with the model's own tokenizer; no weights are loaded."""
    source = find_model(model, study.base)
    tokenizer = load_tokenizer(model, source)
    prompter = Prompter(tokenizer, study.prompt_for(model), wants_bos(tokenizer, source))
    costs = []
    for dataset in study.datasets:
        questions = open_set(dataset, study.base)
        count = sum(1 for _, question in questions.read() if question is not None)
        some = [question for _, question in islice(questions.read(), LOOKED_AT) if question is not None]
        prompts = prompter.many([(question.question, question.context) for question in some])
        own = sum(len(prompt.ids) - len(prompter.shared_ids) for prompt in prompts) / max(1, len(prompts))
        size = min(count, dataset.sample or count)
        shared = len(prompter.shared_ids)
        costs.append(Cost(model.name, dataset.name, size, shared, own, study.answers.max_new_tokens))
    return costs
