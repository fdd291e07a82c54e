"""A first chart in a few minutes: a few hundred questions of each set, mixed.

Small models answer a few percent right. Of 200 questions that leaves about ten right answers, too few for a probe per
set; of 200 questions of each of four sets, mixed, it leaves enough for one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from anchorscope.errors import StoreError
from anchorscope.progress import Progress, silent
from anchorscope.questions.definition import PUBLISHED
from anchorscope.questions.record import QUESTIONS, Question
from anchorscope.questions.stage import questions_stage
from anchorscope.store import Store
from anchorscope.store.files import is_local, write_text
from anchorscope.store.fill import fill
from anchorscope.study import ModelSpec, Study

QUESTIONS_PER_SET = 200
MIXED = "four-sets"
SHARD_ROWS = 128  # what a stop loses is answered again in seconds


def demo_sets(model: ModelSpec, runs: Path, data: Path | None, count: int = QUESTIONS_PER_SET) -> Study:
    """What the questions of a demo are drawn from: some of each of the four sets."""
    if not is_local(runs):
        raise StoreError("a demo keeps its question set beside the run, on disk", "Give a folder: --runs DIR.")
    sets = [{"set": name, "sample": count} for name in PUBLISHED]
    study = Study.model_validate(
        {"name": f"demo-{model.name}-questions", "models": [model.model_dump()], "datasets": sets}
    )
    return study if data is None else study.with_data(data)


def demo_study(
    model: ModelSpec, runs: Path, sampled: Study, count: int = QUESTIONS_PER_SET, progress: Progress = silent
) -> Study:
    """The study of a demo; its questions are sampled from the four sets and written beside the run."""
    folder = runs / sampled.name
    rows: list[dict[str, Any]] = []
    with Store.writing(folder, sampled) as store:
        for dataset in sampled.datasets:
            fill(questions_stage(dataset, store, progress), progress)
            rows += [_plain(row, dataset.name) for row in store.questions(dataset.name).table(QUESTIONS)]
        definition = {
            "name": MIXED,
            "title": "PopQA, TriviaQA, HotpotQA and NQ, mixed",
            "file": f"{MIXED}.jsonl",
            "fields": {"id": "id", "question": "question", "answers": "answers", "subject": "subject"},
        }
        write_text(folder / f"{MIXED}.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        write_text(folder / f"{MIXED}.yaml", yaml.safe_dump(definition, sort_keys=False))
    return Study.model_validate(
        {
            "name": f"demo-{model.name}",
            "description": f"{count} questions of each of four sets, mixed: a first look.",
            "models": [model.model_dump()],
            "datasets": [{"set": str((folder / f"{MIXED}.yaml").resolve()), "name": MIXED}],
            "traces": {"max_wrong": 400, "attention_samples": 0},
            "probes": {"repeats": 3, "resamples": 500, "refit": []},
            "shard_rows": SHARD_ROWS,
        }
    )


def outlook(model: ModelSpec, count: int) -> str:
    """What a demo will do and take, before it begins."""
    return (
        f"{model.name} is asked {4 * count:,} questions, its right answers and at most 400 wrong ones are traced, and "
        "a probe is fitted in each layer. A model of 135 million parameters takes about two minutes on two idle cores, "
        "three to six where bfloat16 is slow; others take in proportion. Every stage says how far it is, and the same "
        "command goes on from where it was stopped."
    )


def _plain(row: Question, dataset: str) -> dict[str, Any]:
    return {"id": f"{dataset}-{row.id}", "question": row.question, "answers": row.answers, "subject": row.subject}


def words(right: int, traced: int) -> str:
    """What so small a sample can and cannot show."""
    return (
        f"One probe per layer was fitted on {traced} answers, {right} of them right, of four sets mixed.\n"
        "It can show: whether cutting the question's key tokens moves the read-outs of some answers and not of others, "
        "and roughly in which layers. Look at the bands, not at the lines.\n"
        "It cannot show: differences between the sets, small effects, or what the controls leave of the effect; part "
        "of what is read may be which set a question is from. For that run a study:  anchorscope init"
    )
