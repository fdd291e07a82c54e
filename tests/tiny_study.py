"""A study of tiny models whose answers are given, so that a whole run has right and wrong ones enough."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorscope import Study
from anchorscope.answers.answerer import Answerer
from anchorscope.models.load import Model
from anchorscope.store import Store
from conftest import write_jsonl
from filling import write_answers, write_grades, write_questions, write_spans, write_traces
from tiny import save_tiny

RIGHT, WRONG = ("Paris", "old Rome", "Vienna"), ("sand", "a zebra", "two shoes", "fog")
RELATIONS = ("river", "hill", "bridge")


def write_study(
    folder: Path,
    models: Mapping[str, str],
    sets: Mapping[str, tuple[int, int]],
    accepted: str = "x",
    passages: bool = False,
    **fields: Any,
) -> Study:
    """Write models (name → family), sets (name → how many right and wrong answers) and `study.yaml` into a folder.

    Two questions share a subject, every fifth has a context, with `passages` all of them. Three more of each set are
    dropped.
    """
    given, datasets = [], []
    for name, (right, wrong) in sets.items():
        rows = []
        for i in range(right + wrong):
            label = i * right // (right + wrong) != (i + 1) * right // (right + wrong)  # spread evenly
            relation = RELATIONS[i % 3]
            question = f"Which {relation} of {name} is near the tower {i}?"
            rows.append(
                {"id": f"q{i}", "question": question, "answers": [accepted.format(i)], "subject": f"{name} {i // 2}",
                 "relation": relation, "popularity": float(i)}
            )  # fmt: skip
            words = RIGHT if label else WRONG
            context = f"Tower {i} is old." if i % 5 == 4 else None
            if passages:
                context = f"Tower {i} is old. {words[i % len(words)]} is near. Nobody knows."
            given.append(
                {"question": question, "answer": words[i % len(words)], "label": label, "context": context}
            )  # fmt: skip
        for i in range(3):  # a rule drops these: no word in the answer, no answer, no row in the file
            question = f"Which street of the {name} leads to gate {i}?"
            rows.append({"id": f"d{i}", "question": question, "answers": ["x"]})
            if i < 2:
                given.append({"question": question, "answer": ["...", ""][i], "label": True})
        path = write_jsonl(folder / f"{name}.jsonl", rows)
        datasets.append({"set": "popqa", "name": name, "path": str(path)})
    write_jsonl(folder / "given.jsonl", given)
    study = {
        "name": "s",
        "models": [
            {"id": str(save_tiny(family, folder / name)), "name": name, "dtype": "float32", "device": "cpu"}
            for name, family in models.items()
        ],
        "datasets": datasets,
        "prompt": {"shots": 1},
        "answers": {"source": "file", "file": "given.jsonl"},
        **fields,
    }
    made = Study.model_validate(study).based_at(folder)
    (folder / "study.yaml").write_text(json.dumps(made.record()))
    return made


def write_samples(model: Model, store: Store) -> Answerer:
    """Questions, answers and spans of every set."""
    answerer = Answerer(model, store.study)
    for dataset in store.study.datasets:
        write_questions(dataset, store)
        write_answers(answerer, dataset.name, store)
        write_grades(store, model.name, dataset.name)
        write_spans(model, dataset.name, store)
    return answerer


def trace_all(model: Model, store: Store) -> None:
    """Everything up to the activations."""
    answerer = write_samples(model, store)
    for dataset in store.study.datasets:
        write_traces(model, answerer.prompter, dataset.name, store)
