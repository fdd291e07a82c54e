"""Read answers, to know how often the grader is right: `draw` makes sheets to read, `count` counts what was read.

    python checks/reading.py draw RUN SHEETS [--draw 1|2]   a sheet for each model and set: question, accepted, answer
    python checks/reading.py count RUN                      the grader's precision and misses, with intervals; JSON last

What was judged lies in checks/judged, which says how.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anchorscope.answers.record import ANSWERS
from anchorscope.grades.grading import RULES, grader, with_rules
from anchorscope.pathways.intervals import wilson
from anchorscope.questions.record import QUESTIONS
from anchorscope.store import Store

JUDGED = Path(__file__).with_name("judged")
ADDED = {"echoes", "small_words", "both", "beginnings", "titles", "schedules", "surplus"}  # since the first draw
BEFORE = with_rules(RULES - ADDED)
NOW = grader()
RIGHT, WRONG = 80, 30
LAST = 3  # the draw that no rule was made after


def cells(store: Store) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Every model and set with answers: its rows, with the grade before and now."""
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
    """The answers of one draw."""
    order = sorted(rows, key=lambda row: hashlib.blake2b(f"0/reading/{draw}/{row['id']}".encode()).digest())
    by = "before" if draw == 1 else "now"
    right = [row for row in order if row[by] == "right" and row["id"] not in seen][:RIGHT]
    wrong = [row for row in order if row[by] == "wrong" and row["answer"]][:WRONG] if draw == 1 else []
    return [{**row, "graded": row[by]} for row in right + wrong]


def read(model: str, dataset: str, draw: int) -> list[dict[str, str]]:
    """What was judged."""
    path = JUDGED / f"{model}-{dataset}-{draw}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def sheets(store: Store, folder: Path, draw: int) -> None:
    """Write a sheet for each model and set, in an order that does not give the grade away."""
    folder.mkdir(parents=True, exist_ok=True)
    for model, dataset, rows in cells(store):
        seen = {row["id"] for earlier in range(1, draw) for row in read(model, dataset, earlier)}
        picked = drawn(rows, draw, seen)
        picked.sort(key=lambda row: hashlib.blake2b(row["id"].encode()).digest())
        lines = [json.dumps({k: row[k] for k in ("id", "question", "accepted", "answer")}, ensure_ascii=False)
                 for row in picked]  # fmt: skip
        (folder / f"{model}-{dataset}-{draw}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{model}, {dataset}: {len(picked)} answers to read")


def count(store: Store) -> dict[str, Any]:
    """Precision of what is called right, before and now, and right answers among those called wrong."""
    table: dict[str, Any] = {}
    for model, dataset, rows in cells(store):
        by_id = {row["id"]: row for row in rows}
        first, last = read(model, dataset, 1), read(model, dataset, LAST)
        called = {
            "before": [row for row in first if row["graded"] == "right"],
            "now, of the first draw": [
                row for row in first if row["graded"] == "right" and by_id[row["id"]]["now"] == "right"
            ],
            "now": [row for row in last if by_id[row["id"]]["now"] == "right"],
        }
        line: dict[str, Any] = {
            "right": sum(row["now"] == "right" for row in rows),
            "cannot tell": sum(row["now"] == "cannot_tell" for row in rows),
            "answers": len(rows),
        }
        for name, judged in called.items():
            told = [row for row in judged if row["verdict"] != "cannot_tell"]
            line[name] = interval(sum(row["verdict"] == "right" for row in told), len(told))
        missed = [row for row in first if row["graded"] == "wrong" and row["verdict"] != "cannot_tell"]
        line["missed"] = interval(sum(row["verdict"] == "right" for row in missed), len(missed))
        untold = [row for row in first if by_id[row["id"]]["now"] == "cannot_tell"]
        line["of what cannot be told now, right"] = interval(sum(r["verdict"] == "right" for r in untold), len(untold))
        table[f"{model}/{dataset}"] = line
    return table


def interval(right: int, total: int) -> dict[str, float]:
    """A share with its 95 % Wilson interval, in percent."""
    low, high = wilson(right, total)
    return {"k": right, "n": total, "percent": round(100 * right / max(1, total), 1), "low": round(100 * low, 1),
            "high": round(100 * high, 1)}  # fmt: skip


def main() -> None:
    """Draw or count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["draw", "count"])
    parser.add_argument("run", type=Path)
    parser.add_argument("sheets", type=Path, nargs="?", default=Path("sheets"))
    parser.add_argument("--draw", type=int, default=1, choices=[1, 2, 3])
    options = parser.parse_args()
    store = Store.open(options.run)
    if options.what == "draw":
        sheets(store, options.sheets, options.draw)
        return
    table = count(store)
    for cell, line in table.items():
        print(cell, f"{line['right']} right, {line['cannot tell']} cannot be told, of {line['answers']}")
        for name in ("before", "now, of the first draw", "now", "missed", "of what cannot be told now, right"):
            share = line[name]
            print(
                f"  {name:36}{share['k']:4} of {share['n']:3}  {share['percent']:5} % [{share['low']}, {share['high']}]"
            )
    print(json.dumps(table))


if __name__ == "__main__":
    main()
