"""A real judge against people: `python checks/judge.py --base-url http://localhost:8000/v1 --model NAME`. JSON last.

Asks an OpenAI-compatible endpoint about a seeded part of the answers that people judged (checks/grading.py), through
the same code a run uses, and says how often they agree. For a server of one's own, for example transformers' own:

    pip install fastapi uvicorn openai && transformers serve --port 8000 &
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

from anchorscope.grades.grading import grader
from anchorscope.grades.judge import Case, Judge
from anchorscope.study import JudgeSpec
from grading import cases, share


def main() -> None:
    """Draw, ask, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--key", help="the environment variable that holds the key")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/qa"))
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a file to keep what was said in, and to go on from")
    parser.add_argument("--at-once", type=int, default=2)
    options = parser.parse_args()
    judged = [(kind == "recall", Case(answer, accepted, question))
              for kind, rows in cases(options.data).items() for _, answer, accepted, question in rows]  # fmt: skip
    some = random.Random(options.seed).sample(judged, options.count)
    spec = JudgeSpec(
        base_url=options.base_url, model=options.model, key=options.key, at_once=options.at_once, timeout=300.0
    )
    start = time.perf_counter()
    grades = Judge(spec, options.keep)([case for _, case in some])
    seconds, rules = time.perf_counter() - start, grader()
    found: dict[str, object] = {"answers": len(some), "seconds": round(seconds)}
    for name, verdicts in (
        ("judge", [grade.judgement for grade in grades]),
        ("alias", [rules(*case).judgement for _, case in some]),
    ):
        people = [right for right, _ in some]
        told = [(v == "right", p) for v, p in zip(verdicts, people, strict=True) if v != "cannot_tell"]
        found[name] = {
            "cannot tell": len(some) - len(told),
            "agrees with people": share(sum(v == p for v, p in told), len(told)),
            "calls right what people call right": share(sum(v for v, p in told if p), sum(p for _, p in told)),
            "calls right what people call wrong": share(sum(v for v, p in told if not p), sum(not p for _, p in told)),
        }
    print(json.dumps(found, ensure_ascii=False, indent=1))
    print(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    main()
