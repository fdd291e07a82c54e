"""How often are the answers that the grader calls right really right, and how many right answers does it miss?

    python checks/grader_against_readers.py count --run RUN                        precision and misses, with intervals
    python checks/grader_against_readers.py recall --run RUN                       right answers that it calls right
    python checks/grader_against_readers.py draw --run RUN --sheets DIR --draw 1   sheets of answers, to be read again
    python checks/grader_against_readers.py draw_sampled --run RUN --sheets DIR    sheets of sampled answers
    python checks/grader_against_readers.py sampled                                errors of the grader by class

Sampled answers are several answers to questions that have both right and wrong ones, on which W rests. What readers
judged lies in checks/judged, which says how. RUN is a run of the study small-models.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anchorscope.answers.record import ANSWERS
from anchorscope.grades.grading import RULES, grader, with_rules
from anchorscope.probes.record import WITHIN, WithinReadout
from anchorscope.questions.record import QUESTIONS, Question
from anchorscope.store import Store
from helpers.steps import Check, Figures, Options
from helpers.tables import share, write_rows

check = Check(__doc__)

JUDGED = Path(__file__).with_name("judged")
ADDED = {"echoes", "small_words", "both", "beginnings", "titles", "schedules", "surplus"}  # since the first draw
BEFORE = with_rules(RULES - ADDED)
NOW = grader()
RIGHT, WRONG = 80, 30
LAST = 3  # the draw after which no rule was made
RECALL = 4  # the draw of answers that are called wrong, for recall
MANY_WRONG = 300
OF_CLASS = 50  # sampled answers of each class that are drawn, per model and set: 200 per set
KINDS = ("plausible", "echo", "garbage")
"""Kinds of wrong answers: one that somebody might give, one that repeats the question, one that is no answer at all."""


def cells(store: Store) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Every model and set with answers, and its rows with the grade before and now."""
    for model in store.study.models:
        for dataset in store.study.datasets:
            cell = store.results(model.name, dataset.name)
            if not cell.complete(ANSWERS):
                continue
            rows = []
            for question, answer in zip(
                store.questions(dataset.name).table(QUESTIONS), cell.table(ANSWERS), strict=True
            ):
                given = (answer.answer, question.answers, question.question)
                rows.append({"id": question.id, "question": question.question, "accepted": question.answers[:12],
                             "answer": answer.answer, "before": BEFORE(*given).judgement,
                             "now": NOW(*given).judgement})  # fmt: skip
            yield model.name, dataset.name, rows


def drawn(rows: list[dict[str, Any]], draw: int, seen: set[str]) -> list[dict[str, Any]]:
    """The answers of one draw: the fourth is of answers called wrong alone."""
    order = sorted(rows, key=lambda row: hashlib.blake2b(f"0/reading/{draw}/{row['id']}".encode()).digest())
    by = "before" if draw == 1 else "now"
    if draw == RECALL:
        return [{**row, "graded": "wrong"} for row in order if row["now"] == "wrong" and row["answer"]][:MANY_WRONG]
    right = [row for row in order if row[by] == "right" and row["id"] not in seen][:RIGHT]
    wrong = [row for row in order if row[by] == "wrong" and row["answer"]][:WRONG] if draw == 1 else []
    return [{**row, "graded": row[by]} for row in right + wrong]


def read(model: str, dataset: str, draw: int) -> list[dict[str, str]]:
    """What readers judged."""
    path = JUDGED / f"{model}-{dataset}-{draw}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@check.step("run", by_default=False)
def draw(options: Options, work: Path) -> dict[str, int]:
    """Write a sheet for each model and set, in an order that does not give the grade away."""
    options.sheets.mkdir(parents=True, exist_ok=True)
    counts = {}
    for model, dataset, rows in cells(Store.open(options.run)):
        seen = {row["id"] for earlier in range(1, options.draw) for row in read(model, dataset, earlier)}
        picked = drawn(rows, options.draw, seen)
        picked.sort(key=lambda row: hashlib.blake2b(row["id"].encode()).digest())
        lines = [json.dumps({k: row[k] for k in ("id", "question", "accepted", "answer")}, ensure_ascii=False)
                 for row in picked]  # fmt: skip
        sheet = options.sheets / f"{model}-{dataset}-{options.draw}.jsonl"
        sheet.write_text("\n".join(lines) + "\n", encoding="utf-8")
        counts[sheet.name] = len(picked)
    return counts


@check.step("run")
def count(options: Options, work: Path) -> Figures:
    """Precision of what is called right, before and now, and right answers among those called wrong."""
    table: Figures = {}
    for model, dataset, rows in cells(Store.open(options.run)):
        by_id = {row["id"]: row for row in rows}
        first, last = read(model, dataset, 1), read(model, dataset, LAST)
        called_right = [row for row in first if row["graded"] == "right"]
        read_rows = {
            "before": called_right,
            "now, of the first draw": [row for row in called_right if by_id[row["id"]]["now"] == "right"],
            "now": [row for row in last if by_id[row["id"]]["now"] == "right"],
            "missed": [row for row in first if row["graded"] == "wrong"],
        }
        line: dict[str, Any] = {
            "right": sum(row["now"] == "right" for row in rows),
            "cannot tell": sum(row["now"] == "cannot_tell" for row in rows),
            "answers": len(rows),
        }
        print(f"{model}/{dataset}: {line['right']} right, {line['cannot tell']} cannot tell, of {line['answers']}")
        for name, judged in read_rows.items():
            told = [row for row in judged if row["verdict"] != "cannot_tell"]
            line[name] = share(sum(row["verdict"] == "right" for row in told), len(told))
        untold = [row for row in first if by_id[row["id"]]["now"] == "cannot_tell"]
        line["right among what cannot be told now"] = share(sum(r["verdict"] == "right" for r in untold), len(untold))
        for name, each in line.items():
            if isinstance(each, dict):
                interval = f"{each['percent']:5} % [{each['low']}, {each['high']}]"
                print(f"  {name:36}{each['k']:4} of {each['n']:3}  {interval}")
        table[f"{model}/{dataset}"] = line
    return table


@check.step("run", by_default=False)
def recall(options: Options, work: Path) -> Figures:
    """The share of right answers that the grader calls right, where 300 answers that it calls wrong were read.

    The interval is that of the misses. Right answers that it calls right: their number times the precision of draw 3.
    """
    table: Figures = {}
    for model, dataset, rows in cells(Store.open(options.run)):
        told = [row for row in read(model, dataset, RECALL) if row["verdict"] != "cannot_tell"]
        if not told:
            continue
        missed = share(sum(row["verdict"] == "right" for row in told), len(told))
        precise = [row for row in read(model, dataset, LAST) if row["verdict"] != "cannot_tell"]
        called = Counter(row["now"] for row in rows)
        found = called["right"] * sum(row["verdict"] == "right" for row in precise) / len(precise)
        ends = {"percent": "percent", "low": "high", "high": "low"}
        shares = {
            name: round(100 * found / (found + called["wrong"] * missed[end] / 100), 1) for name, end in ends.items()
        }
        table[f"{model}/{dataset}"] = {"called": dict(called), "right among called wrong": missed, "recall": shares}
        print(f"{model}/{dataset}: {table[f'{model}/{dataset}']}")
    return table


def judged_samples(model: str, dataset: str) -> Path:
    """The file with what readers judged of sampled answers."""
    return JUDGED / f"{model}-{dataset}-sampled.jsonl"


@check.step("run", by_default=False)
def draw_sampled(options: Options, work: Path) -> dict[str, int]:
    """Write a sheet of sampled answers for each model and set; what the grader said of them stands in another file."""
    store = Store.open(options.run)
    point, seed = store.study.traces.points[0], store.study.seed
    options.sheets.mkdir(parents=True, exist_ok=True)
    counts = {}
    for model in store.study.models:
        for dataset in store.study.datasets:
            cell = store.results(model.name, dataset.name)
            if cell.entry(WITHIN.at(point)) is None:
                continue
            questions = {row.id: row for row in store.questions(dataset.name).table(QUESTIONS)}
            rows = sorted(cell.table(WITHIN.at(point)), key=lambda row: _order(f"{seed}/sampled", row.id, row.number))
            picked = [row for correct in (True, False) for row in [r for r in rows if r.correct is correct][:OF_CLASS]]
            picked.sort(key=lambda row: _order("sheet", row.id, row.number))
            name = judged_samples(model.name, dataset.name).name
            for suffix, about in (("", _to_read), (".graded", _graded)):
                lines = [json.dumps(about(row, questions[row.id]), ensure_ascii=False) for row in picked]
                (options.sheets / f"{name}{suffix}").write_text("\n".join(lines) + "\n", encoding="utf-8")
            counts[name] = len(picked)
    return counts


def _order(what: str, question: str, number: int) -> bytes:
    return hashlib.blake2b(f"{what}/{question}/{number}".encode()).digest()


def _to_read(row: WithinReadout, question: Question) -> dict[str, Any]:
    accepted = question.answers[:12]
    return {"id": row.id, "number": row.number, "question": question.question, "accepted": accepted,
            "answer": row.answer}  # fmt: skip


def _graded(row: WithinReadout, question: Question) -> dict[str, Any]:
    return {"id": row.id, "number": row.number, "graded": "right" if row.correct else "wrong"}


@check.step(by_default=False)
def sampled(options: Options, work: Path) -> Figures:
    """Of sampled answers, how many are called right that are wrong, and the other way round; kinds of wrong ones."""
    rows = []
    for path in sorted(JUDGED.glob("*-sampled.jsonl")):
        model, _, dataset = path.stem.removesuffix("-sampled").rpartition("-")
        judged = [json.loads(line) for line in path.read_text().splitlines()]
        for called in ("right", "wrong"):
            told = [row for row in judged if row["graded"] == called and row["verdict"] != "cannot_tell"]
            kinds = Counter(row["kind"] for row in told if row["verdict"] == "wrong")
            errors = sum(row["verdict"] != called for row in told)
            rows.append({"dataset": dataset, "model": model, "class": called, "read": len(told), "wrong": errors}
                        | {kind: kinds[kind] for kind in KINDS})  # fmt: skip
            print(f"{model}, {dataset}, called {called}: {errors} of {len(told)} are not; {dict(kinds)}")
    write_rows(options.table, rows)
    return {f"{row['model']}/{row['dataset']}/{row['class']}": share(row["wrong"], row["read"]) for row in rows}


check.option("--table", "Write errors of sampled answers to this file", Path("grading-of-samples.csv"), type=Path)
check.option("--sheets", "Write the sheets to this folder", Path("sheets"), type=Path)
check.option("--draw", "Make the sheets of this draw", 1, choices=[1, 2, 3, RECALL])

if __name__ == "__main__":
    check()
