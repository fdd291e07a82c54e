"""Several answers to a question, sampled in rounds: from the `answers` table to the `sampled` table of one model.

A question gets rounds of answers until one round alone has both right and wrong answers that no earlier round had, or
until the maximum number of answers is reached. Only the new answers of its last round are compared with each other.
Answers of earlier rounds are all alike, because the rounds would have ended otherwise. An answer that is seen after
several rounds is a rare one, so comparing it with theirs would favour any score that knows how common an answer is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from anchorscope.answers.generate import Generated
from anchorscope.answers.record import ANSWERS, SAMPLED, Sampled
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter
from anchorscope.progress import Advance, in_parts
from anchorscope.store import Cell, Plan, Sharded, Store, Table

SHARD_QUESTIONS = 64  # with all their answers


class Asker(Protocol):
    """Who is asked: an `Answerer`."""

    model: Model
    prompter: Prompter

    @property
    def generate(self) -> Any:
        """What generates: its `sample` is called."""


@dataclass(frozen=True)
class _PromptRow:
    """One question as it was put to the model."""

    id: str
    context: str | None
    prompt_ids: list[int]
    """Prompt tokens after the shared prefix."""


def sampled_stage(
    answerer: Asker, dataset: str, store: Store, questions: Sequence[str], mixed: Callable[[Sampled], bool]
) -> Sharded[Sampled]:
    """The `sampled` table of one model and dataset: the answers to these questions, in their order.

    The prompts are those of the `answers` table. `mixed` says whether the last round has right and wrong answers.
    """
    spec, seed = store.study.evidence, store.study.seed
    assert spec is not None, "a study without `evidence` samples nothing"
    cell = store.results(answerer.model.name, dataset)
    table = _begin(cell, store, questions)
    prompt_rows = _prompts(cell, questions)

    def sample(shard: int, advance: Advance) -> list[list[Sampled]]:
        rows = [prompt_rows()[questions[i]] for i in table.plan.rows_of(shard)]
        prompts = [[*answerer.prompter.shared_ids, *row.prompt_ids] for row in rows]
        keys = [f"{seed}/sampled/{row.id}" for row in rows]
        in_answers = in_parts(advance, spec.answers)
        made: list[list[Generated]] = [[] for _ in rows]
        found: dict[int, Sampled] = {}
        left = list(range(len(rows)))
        for first in range(0, spec.answers, spec.round):
            count = min(spec.round, spec.answers - first)
            drawn = answerer.generate.sample(
                [prompts[i] for i in left], count, spec.temperature, [keys[i] for i in left],
                top_p=spec.top_p, first=first, advance=lambda questions, count=count: in_answers(questions * count),
            )  # fmt: skip
            for i, answers in zip(left, drawn, strict=True):
                made[i] += answers
                found[i] = distinct(rows[i], made[i], [text_of(answer) for answer in made[i]], first)
            asked, left = len(left), [i for i in left if not mixed(found[i])]
            in_answers((asked - len(left)) * (spec.answers - first - count))  # which are not needed
        return [[found[i] for i in range(len(rows))]]

    def text_of(answer: Generated) -> str:
        text: str = answerer.prompter.tokenizer.decode(answer.ids, skip_special_tokens=True)
        return text.strip()

    return Sharded(f"{answerer.model.name}, {dataset}: answering up to {spec.answers} times", (table,), sample)


def distinct(prompt: _PromptRow, made: Sequence[Generated], texts: Sequence[str], last: int) -> Sampled:
    """The answers to one question, those that say the same once: as the first of them says it.

    `last`: the number of the first answer of the last round.
    """
    same: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        same.setdefault(" ".join(text.casefold().split()), []).append(i)
    first = [numbers[0] for numbers in same.values()]
    return Sampled(
        id=prompt.id,
        context=prompt.context,
        prompt_ids=prompt.prompt_ids,
        texts=[texts[i] for i in first],
        answer_ids=[token for i in first for token in made[i].ids],
        sizes=[len(made[i].ids) for i in first],
        logprobs=[value for i in first for value in made[i].logprobs],
        times=[len(numbers) for numbers in same.values()],
        ended=[int(made[i].ended) for i in first],
        compared=[int(i >= last) for i in first],
    )


def _prompts(cell: Cell, questions: Sequence[str]) -> Callable[[], dict[str, _PromptRow]]:
    """The prompts of these questions by their ids, read on first need."""

    @cache
    def read() -> dict[str, _PromptRow]:
        wanted, columns = set(questions), ["id", "context", "prompt_ids"]
        batches = cell.table(ANSWERS).batches(columns)
        rows = (_PromptRow(**row) for batch in batches for row in batch.to_pylist() if row["id"] in wanted)
        by_id = {row.id: row for row in rows}
        if len(by_id) < len(wanted):
            raise ValueError(f"{len(wanted) - len(by_id)} of the questions to be asked are not in {cell.folder}")
        return by_id

    return read


def _begin(cell: Cell, store: Store, questions: Sequence[str]) -> Table[Sampled]:
    """Begin the table with all it is a function of."""
    spec = store.study.evidence
    assert spec is not None
    cell.table(ANSWERS)  # which must have been begun
    answers = cell.entry(ANSWERS)
    assert answers is not None
    inputs = {
        "answers": answers["inputs"],
        "evidence": {
            "answers": spec.answers,
            "round": spec.round,
            "temperature": spec.temperature,
            "top_p": spec.top_p,
        },
        "grades": store.study.grades.identity(),
        "seed": store.study.seed,
        "questions": hashlib.sha256("\n".join(questions).encode()).hexdigest(),
    }
    facts = {
        "batch_plan": "rows of similar length, rows × answers of a round × (longest + max_new_tokens) ≤ batch_tokens, "
        "within a shard",
    }
    return cell.begin(SAMPLED, Plan(len(questions), SHARD_QUESTIONS), inputs, facts)
