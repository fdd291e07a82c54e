"""The graders against people: `python checks/grading.py --data ../shared/data/qa`. The last line is one JSON object.

The EfficientQA test rows of NQ carry answers of systems that people judged. False accept: answers judged wrong, graded
against all accepted ones. Recall: answers judged right that were not annotated, graded against the annotated ones.
Rules were developed on the even rows; the odd rows are held out.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from anchorscope.grades.grading import RULES, Grader, grader, with_rules
from anchorscope.pathways.intervals import wilson

Case = tuple[int, str, list[str], str]  # row, answer, accepted, question
HALVES = ("all", "even", "odd")


def cases(folder: Path) -> dict[str, list[Case]]:
    """The judged answers of both kinds."""
    lines = (folder / "nq.jsonl").read_bytes().decode("utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    judged = [row for row in rows if row.get("incorrect_answers") is not None]
    found: dict[str, list[Case]] = {"false_accept": [], "recall": []}
    for i, row in enumerate(judged):
        found["false_accept"] += [(i, a, row["answers"], row["question"]) for a in row["incorrect_answers"]]
        known = row["answers_annotated"]
        found["recall"] += [(i, a, known, row["question"]) for a in row["answers"] if a not in known]
    return found


def share(k: int, n: int) -> dict[str, float]:
    """Percent with its 95 % Wilson interval."""
    low, high = wilson(k, n)
    percents = {name: round(100 * value, 2) for name, value in (("percent", k / n), ("low", low), ("high", high))}
    return {"n": n, "k": k, **percents}


def measure(grade: Grader, judged: list[Case]) -> dict[str, dict[str, float]]:
    """How many of the answers the grader takes as right: all rows, even rows, odd rows."""
    verdicts = [(i, grade(answer, accepted, question).correct is True) for i, answer, accepted, question in judged]
    kept = {"all": verdicts, "even": [v for v in verdicts if v[0] % 2 == 0], "odd": [v for v in verdicts if v[0] % 2]}
    return {half: share(sum(correct for _, correct in kept[half]), len(kept[half])) for half in HALVES}


def show_rules(judged: dict[str, list[Case]]) -> None:
    """How the counts change when one rule is taken out."""
    full = {kind: measure(grader("alias"), judged[kind]) for kind in judged}
    print(f"\n{'taken out':15} {'false accepts: even':>20} {'odd':>5} {'hits: even':>12} {'odd':>5}")
    for rule in sorted(RULES):
        without = {kind: measure(with_rules(RULES - {rule}), judged[kind]) for kind in judged}
        change = {
            (kind, half): without[kind][half]["k"] - full[kind][half]["k"] for kind in judged for half in HALVES[1:]
        }
        print(
            f"{rule:15} {change['false_accept', 'even']:+20.0f} {change['false_accept', 'odd']:+5.0f}"
            f" {change['recall', 'even']:+12.0f} {change['recall', 'odd']:+5.0f}"
        )


def speed(name: str) -> int:
    """Gradings a second of fresh answers, ten accepted answers each."""
    accepted = [
        f"{first} {last}" for first in ("John", "Mary Ann", "New", "5 May", "the") for last in ("Smith", "1972")
    ]
    grade, count = grader(name), 5_000
    start = time.perf_counter()
    for i in range(count):
        grade(f"The answer is {i}, John Fitzgerald Kennedy.", accepted, "who was the president")
    return round(count / (time.perf_counter() - start))


def main() -> None:
    """Print the figures of both graders, the worth of each rule, and the speed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds nq.jsonl")
    judged = cases(parser.parse_args().data)
    result: dict[str, dict[str, Any]] = {}
    for kind, some in judged.items():
        result[kind] = {}
        for name in ("plain", "alias"):
            figures = measure(grader(name), some)
            for half, f in figures.items():
                interval = f"{f['percent']:5.2f} % [{f['low']:.2f}, {f['high']:.2f}]"
                print(f"{kind:13} {name:6} {half:5} {f['k']:4} of {f['n']:4}  {interval}")
            result[kind][name] = {**figures["all"], "even": figures["even"], "odd": figures["odd"]}
    show_rules(judged)
    print("\n" + ", ".join(f"{name}: {speed(name):,} gradings a second" for name in ("plain", "alias")))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
