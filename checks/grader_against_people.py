"""How often do the graders agree with people?

    python checks/grader_against_people.py --data DIR [--judge-url URL --judge-model NAME]

The EfficientQA test rows of NQ carry answers of systems that people judged. False accepts are answers that people
judged wrong, graded against all accepted answers. Recall is of answers that people judged right and that were not
annotated, graded against the annotated ones alone. The rules were developed on even rows; odd rows are held out.

Steps: `rules` measures both rule-based graders and the worth of each rule; `judge` asks a language model
about a seeded part of these answers, through the code that a run uses. For a server on this machine:

    pip install fastapi uvicorn openai && transformers serve --port 8000 &
    … judge --judge-url http://localhost:8000/v1 --judge-model NAME
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from anchorscope.grades.grading import RULES, Grader, grader, with_rules
from anchorscope.grades.judge import Case, Judge
from anchorscope.study import JudgeSpec
from helpers.steps import Check, Figures, Options
from helpers.tables import share

check = Check(__doc__)

HALVES = ("all", "even", "odd")
Cases = list[tuple[int, Case]]
"""Rows and what is graded of each."""


def cases(folder: Path) -> dict[str, Cases]:
    """The answers that people judged, of both kinds."""
    lines = (folder / "nq.jsonl").read_bytes().decode("utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    judged: dict[str, Cases] = {"false_accept": [], "recall": []}
    for i, row in enumerate(row for row in rows if row.get("incorrect_answers") is not None):
        question, accepted, known = row["question"], row["answers"], row["answers_annotated"]
        judged["false_accept"] += [(i, Case(each, accepted, question)) for each in row["incorrect_answers"]]
        judged["recall"] += [(i, Case(each, known, question)) for each in accepted if each not in known]
    return judged


def measure(grade: Grader, judged: Cases) -> dict[str, dict[str, float]]:
    """The share of answers that the grader calls right: of all rows, of even rows, of odd rows."""
    verdicts = [(i, grade(*case).correct is True) for i, case in judged]
    kept = {"all": verdicts, "even": [v for v in verdicts if v[0] % 2 == 0], "odd": [v for v in verdicts if v[0] % 2]}
    return {half: share(sum(right for _, right in kept[half]), len(kept[half]), 2) for half in HALVES}


@check.step("data")
def rules(options: Options, work: Path) -> Figures:
    """False accepts and recall of both rule-based graders, and how they change without each rule."""
    judged, figures = cases(options.data), Figures()
    for kind, rows in judged.items():
        figures[kind] = {}
        for name in ("plain", "alias"):
            halves = measure(grader(name), rows)
            for half, each in halves.items():
                interval = f"{each['percent']:5.2f} % [{each['low']:.2f}, {each['high']:.2f}]"
                print(f"{kind:13} {name:6} {half:5} {each['k']:4} of {each['n']:4}  {interval}")
            figures[kind][name] = {**halves["all"], "even": halves["even"], "odd": halves["odd"]}
    print(f"\n{'without the rule':16} {'false accepts: even':>20} {'odd':>5} {'recall: even':>14} {'odd':>5}")
    figures["without"] = {}
    for rule in sorted(RULES):
        less = with_rules(RULES - {rule})
        change = {
            kind: [
                each["k"] - figures[kind]["alias"][half]["k"]
                for half, each in measure(less, rows).items()
                if half != "all"
            ]
            for kind, rows in judged.items()
        }
        wrong, right = change["false_accept"], change["recall"]
        print(f"{rule:16} {wrong[0]:+20.0f} {wrong[1]:+5.0f} {right[0]:+14.0f} {right[1]:+5.0f}")
        figures["without"][rule] = change
    return figures


@check.step("data", "judge_url", "judge_model")
def judge(options: Options, work: Path) -> Figures:
    """Agreement of a language model, and of the rules on the same answers, with people."""
    judged = [(kind == "recall", case) for kind, rows in cases(options.data).items() for _, case in rows]
    drawn = random.Random(options.seed).sample(judged, options.count)
    spec = JudgeSpec(
        base_url=options.judge_url, model=options.judge_model, key=options.key, at_once=options.at_once, timeout=300.0
    )
    start = time.perf_counter()
    grades = Judge(spec, options.keep)([case for _, case in drawn])
    figures: Figures = {"answers": len(drawn), "seconds": round(time.perf_counter() - start)}
    rule_based = grader()
    for name, verdicts in (
        ("judge", [grade.judgement for grade in grades]),
        ("alias", [rule_based(*case).judgement for _, case in drawn]),
    ):
        pairs = zip(verdicts, (right for right, _ in drawn), strict=True)
        told = [(verdict == "right", right) for verdict, right in pairs if verdict != "cannot_tell"]
        figures[name] = {
            "cannot tell": len(drawn) - len(told),
            "agrees with people": share(sum(v == p for v, p in told), len(told), 2),
            "calls right what people call right": share(sum(v for v, p in told if p), sum(p for _, p in told), 2),
            "calls right what people call wrong": share(
                sum(v for v, p in told if not p), sum(not p for _, p in told), 2
            ),
        }
    return figures


check.option("--key", "Take the endpoint's key from the environment variable NAME", metavar="NAME")
check.option("--count", "Ask the judge about this many answers", 600)
check.option("--seed", "Draw these answers from this seed", 0)
check.option("--at-once", "Send this many requests at once", 2)
check.option("--keep", "Keep the judge's replies in FILE, and resume from FILE", type=Path, metavar="FILE")

if __name__ == "__main__":
    check()
