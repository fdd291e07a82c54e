"""From a study's datasets to their `questions` tables.

A set is read twice, streaming: once to check every row and choose the sample, once to write it. Nothing is
written before the whole source has been found good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

from anchorscope.errors import QuestionsError, printable
from anchorscope.progress import Advance, Notice, Progress, nobody, silent
from anchorscope.questions.crossed import Pair, crossed_pairs
from anchorscope.questions.hub_rows import HubRows
from anchorscope.questions.question_set import QuestionSet, open_set
from anchorscope.questions.record import QUESTIONS, Question
from anchorscope.questions.sampling import choose, draw
from anchorscope.store import Forward, Job, Plan, Sharded, Store
from anchorscope.store.stage import Context
from anchorscope.study import DatasetSpec, Example, Study

TICK = 256  # rows between two reports of progress


def questions_stage(
    spec: DatasetSpec, store: Store, progress: Progress = silent, notice: Notice = nobody
) -> Sharded[Question]:
    """The `questions` table of one dataset. Its source is checked whole, and the sample drawn, before it begins."""
    study, cell = store.study, store.questions(spec.name)
    # 1. the source; what was begun at one commit is finished at it, though the branch may have moved
    excluded = sorted({example.question for example in _examples(study)})
    questions = open_set(spec, study.base, excluded)
    begun = cell.entry(QUESTIONS)
    if begun is not None and isinstance(questions.rows, HubRows):
        questions = replace(questions, rows=questions.rows.at(begun["inputs"]["source"]))
    inputs = {
        "set": questions.definition.model_dump(mode="json"),
        "columns": questions.fields.model_dump(mode="json"),
        "source": questions.rows.identity(),
        "sample": spec.sample,
        "seed": study.seed,
        "left_out": excluded,
    } | ({} if spec.crossed is None else {"crossed": spec.crossed})
    # 2. the sample; with the same data and the same draw, the choice made then still holds
    if begun is None or begun["inputs"] != inputs:
        rows, facts = survey(questions, spec.sample, study.seed, progress)
        if spec.crossed is not None:
            pairs = _pairs(questions, spec, facts["cutoff"], study.seed)
            rows, facts = 4 * len(pairs), facts | {"pairs": len(pairs)}
            if len(pairs) < spec.crossed:
                notice(f"{spec.name}: {len(pairs):,} pairs of questions can be crossed, not {spec.crossed:,}")
    else:
        rows, facts = begun["rows"], begun["facts"]
    table = cell.begin(QUESTIONS, Plan(rows, study.shard_rows), inputs, facts)

    # 3. its rows; a source that is not the same before and after has been read while it changed
    def stream() -> Iterator[Question]:
        if spec.crossed is None:
            return chosen(questions, facts["cutoff"], study.seed)
        return (row for pair in _pairs(questions, spec, facts["cutoff"], study.seed) for row in pair.rows())

    sample = Forward(table.plan, stream)
    written: list[int] = []

    def read(shard: int, advance: Advance) -> list[list[Question]]:
        batch = sample(shard)
        if len(batch) < len(table.plan.rows_of(shard)):
            refuse()
        written.append(shard)
        return [batch]

    def check() -> None:
        if questions.rows.identity() != inputs["source"]:
            refuse()

    def refuse() -> NoReturn:
        for shard in written:  # nothing of it stays
            table.remove(shard)
        raise QuestionsError(f"{questions.rows.label} changed while it was read", "Run the same command again.")

    return Sharded(f"{spec.name}: writing questions", (table,), read, check=check)


def survey(
    questions: QuestionSet, sample: int | None, seed: int, progress: Progress = silent
) -> tuple[int, dict[str, Any]]:
    """Check every row and choose the sample: how many rows it has, and the facts for the manifest."""
    left_out: Counter[str] = Counter()
    never = {name: path for name, path in questions.fields if path is not None} if questions.declared else {}

    def draws() -> Iterator[int]:
        with progress(f"{questions.name}: checking questions", None) as advance:
            for count, (_, question) in enumerate(questions.read(never), start=1):
                if count % TICK == 0:
                    advance(TICK)
                if question is None:
                    left_out["stands in the prompt"] += 1
                else:
                    yield draw(question.id, seed)

    choice = choose(draws(), sample)
    if choice.available == 0:
        raise QuestionsError(f"{questions.rows.label}: the dataset holds no questions")
    if never:
        name, path = next(iter(never.items()))
        raise QuestionsError(
            f"{questions.rows.label}: no row has the column '{path}', which the definition gives for {name}",
            f"Correct `fields: {name}` in the definition of the dataset '{questions.definition.name}'.",
        )
    if choice.repeated is not None:
        raise QuestionsError(_repeated_id(questions, choice.repeated, seed))
    facts = {"available": choice.available, "cutoff": choice.cutoff, "left_out": dict(left_out)}
    return choice.size, facts


def chosen(questions: QuestionSet, cutoff: int, seed: int) -> Iterator[Question]:
    """The questions of a sample, in the order of their source."""
    for _, question in questions.read():
        if question is not None and draw(question.id, seed) <= cutoff:
            yield question


def _pairs(questions: QuestionSet, spec: DatasetSpec, cutoff: int, seed: int) -> list[Pair]:
    """The pairs of the sample whose answers are crossed."""
    assert spec.crossed is not None
    pairs = crossed_pairs(chosen(questions, cutoff, seed), spec.crossed, seed)
    if not pairs:
        raise QuestionsError(
            f"{questions.rows.label}: no two questions can be crossed",
            "A pair needs the same relation, or the same question word and type of answer, and different answers.",
        )
    return pairs


def _repeated_id(questions: QuestionSet, repeated: int, seed: int) -> str:
    """Say which id stands where; only hashes were kept, so the source is read once more."""
    places = [
        (question.id, questions.where(number))
        for number, question in questions.read()
        if question is not None and draw(question.id, seed) == repeated
    ]
    return f"the id '{printable(places[0][0])}' is given twice: {places[0][1]} and {places[1][1]}"


def _examples(study: Study) -> list[Example]:
    """Every solved question that stands in some model's prompt."""
    prompts = [study.prompt_for(model) for model in study.models]
    return [example for prompt in prompts for example in prompt.examples[: prompt.shots]]


def stage_of(context: Context, job: Job) -> Sharded[Question]:
    spec = next(dataset for dataset in context.store.study.datasets if dataset.name == job.dataset)
    return questions_stage(spec, context.store, context.progress, context.notice)
