"""What several answers a question cost, and whether vLLM draws them alike. The last line is one JSON object.

`speed`: 64 real questions, 16 answers each: the prompt computed once, against the same prompts asked 16 times. On a
machine with other work set OMP_NUM_THREADS=1 and take the processor's seconds.
`vllm` needs a Python with vLLM and anchorscope in it, given as --vllm-python; without it the step is left out and says
so. 100 questions are answered 16 times by either backend, and by transformers once more at another temperature, which
shows what a difference would look like.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from anchorscope import ModelSpec, PromptSpec
from anchorscope.answers.generate import Generated, Generator
from anchorscope.models.load import Model, load_model
from anchorscope.models.prompts import Prompter
from weights import unpacked

SETS = ("popqa", "triviaqa", "hotpotqa", "nq")
ANSWERS, LIMIT, BUDGET, REPEATS = 16, 24, 8192, 3
COOLER = 0.7  # the temperature that must be seen to differ
ENVIRONMENT = {  # of vLLM; it would leave one thread to itself
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": str(os.cpu_count()),
}
FEW = 24  # questions drawn at COOLER by vLLM, for their log-probabilities

T = TypeVar("T")
Answers = list[list[Generated]]
"""Of each question, all of them."""


def load(place: str, data: Path, count: int, weights: bool = True) -> tuple[Model, Prompter, list[list[int]]]:
    """The model, and the prompts of so many questions, as many of each set."""
    model = load_model(ModelSpec(id=place, name="m", dtype="bfloat16"), weights=weights)
    prompter = Prompter(model.tokenizer, PromptSpec(), model.wants_bos)
    questions = []
    for name in SETS:
        lines = (data / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
        questions += [json.loads(line)["question"] for line in lines[1_000 : 1_000 + count // len(SETS)]]
    return model, prompter, [prompt.ids for prompt in prompter.many([(question, None) for question in questions])]


def timed(ways: dict[str, Callable[[], Any]]) -> dict[str, dict[str, list[float]]]:
    """Seconds of each way, by the clock and of the processor, the ways in turn; a first round warms up."""
    clocks = {"clock": time.perf_counter, "processor": time.process_time}
    seconds: dict[str, dict[str, list[float]]] = {name: {clock: [] for clock in clocks} for name in ways}
    for repeat in range(REPEATS + 1):
        for name, way in ways.items():
            starts = {clock: now() for clock, now in clocks.items()}
            way()
            took = {clock: now() - starts[clock] for clock, now in clocks.items()}
            print(f"{name}: {took}", file=sys.stderr, flush=True)
            if repeat:
                for clock, value in took.items():
                    seconds[name][clock].append(value)
    return seconds


def keys_of(prompts: Sequence[Any], more: str = "") -> list[str]:
    """A key for each prompt."""
    return [f"{more}{i}" for i in range(len(prompts))]


def speed(place: str, data: Path, count: int) -> dict[str, Any]:
    """Seconds for all answers, and how many times longer it takes to ask again and again."""
    model, prompter, prompts = load(place, data, count)
    generator = Generator(model, prompter.shared_ids, LIMIT, BUDGET)
    keys, many = keys_of(prompts), prompts * ANSWERS

    def separate() -> None:
        for number in range(ANSWERS):
            generator.sample(prompts, 1, 1.0, [f"{key}/{number}" for key in keys])

    seconds = timed(
        {
            "prompt once": lambda: generator.sample(prompts, ANSWERS, 1.0, keys),
            "16 calls": separate,
            "one call, each prompt 16 times": lambda: generator.sample(many, 1, 1.0, keys_of(many)),
            "16 greedy calls": lambda: [generator(prompts) for _ in range(ANSWERS)],
        }
    )
    medians = {
        name: {clock: statistics.median(values) for clock, values in each.items()} for name, each in seconds.items()
    }
    once = medians["prompt once"]
    return {
        "questions": len(prompts),
        "answers": ANSWERS,
        "own_tokens_of_a_prompt": round(statistics.mean(map(len, prompts)) - len(prompter.shared_ids), 1),
        "seconds": {
            name: {clock: [round(value, 1) for value in sorted(values)] for clock, values in each.items()}
            for name, each in seconds.items()
        },
        "times_longer": {
            name: {clock: round(value / once[clock], 2) for clock, value in each.items()}
            for name, each in medians.items()
        },
    }


def agreement(first: Sequence[Hashable], second: Sequence[Hashable] | None = None) -> float:
    """How often two of the draws are the same: two of one list, or one of either."""
    mine, n = Counter(first), len(first)
    if second is None:
        return sum(count * (count - 1) for count in mine.values()) / (n * (n - 1))
    theirs = Counter(second)
    return sum(count * theirs[value] for value, count in mine.items()) / (n * len(second))


def apart(first: Sequence[Sequence[Hashable]], second: Sequence[Sequence[Hashable]]) -> dict[str, Any]:
    """Squared distance of two distributions, mean over questions, without bias: about 0 where they are the same."""
    rows = [(agreement(a), agreement(b), agreement(a, b)) for a, b in zip(first, second, strict=True)]
    within, other, across = (round(statistics.mean(column), 4) for column in zip(*rows, strict=True))
    distances = [a + b - 2 * c for a, b, c in rows]
    return {"two_of_the_first": within, "two_of_the_second": other, "one_of_either": across, **mean_of(distances)}


def mean_of(values: Sequence[float]) -> dict[str, Any]:
    """Mean with its 95 % interval over questions."""
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
    return {"mean": round(mean, 4), "interval": [round(mean - 1.96 * error, 4), round(mean + 1.96 * error, 4)]}


def compared(model: Model, first: Answers, second: Answers) -> dict[str, Any]:
    """Two sets of draws: how many distinct answers, how long and how likely, and whether they are distributed alike."""
    texts, tokens = (
        [[[of(each) for each in drawn] for drawn in answers] for answers in (first, second)]
        for of in (lambda each: text(model, each.ids), lambda each: each.ids[0] if each.ids else None)
    )
    measures: dict[str, Callable[[list[Generated]], float]] = {
        "distinct answers": lambda drawn: len({text(model, each.ids) for each in drawn}),
        "tokens": lambda drawn: statistics.mean(len(each.ids) for each in drawn),
        "log-probability of the first": lambda drawn: statistics.mean(each.logprobs[0] for each in drawn if each.ids),
    }
    found: dict[str, Any] = {}
    for name, of in measures.items():
        pairs = [
            (float(of(a)), float(of(b))) for a, b in zip(first, second, strict=True) if any_said(a) and any_said(b)
        ]
        found[name] = {
            "first": mean_of([a for a, _ in pairs]),
            "second": mean_of([b for _, b in pairs]),
            "difference": mean_of([b - a for a, b in pairs]),
        }
    return {**found, "first tokens apart": apart(*tokens), "answers apart": apart(*texts)}


def any_said(drawn: list[Generated]) -> bool:
    """Whether not all of the answers are empty."""
    return any(each.ids for each in drawn)


def text(model: Model, ids: Sequence[int]) -> str:
    """An answer's text, as answers are told apart."""
    return " ".join(model.tokenizer.decode(ids, skip_special_tokens=True).casefold().split())


def against_vllm(place: str, data: Path, count: int, python: str | None) -> dict[str, Any]:
    """Both backends on the same questions, each in a process of its own."""
    if python is None:
        return {"left out": "no --vllm-python was given"}
    command = [python, str(Path(__file__).resolve()), "--data", str(data), "--drawn-by-vllm", place]
    command += ["--questions", str(count)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**ENVIRONMENT, **os.environ})
    child = json.loads(done.stdout.strip().splitlines()[-1])
    drawn, cool = (
        [[Generated(*each) for each in answers] for answers in child[name]] for name in ("answers", "cooler")
    )
    model, prompter, prompts = load(place, data, count)
    generator = Generator(model, prompter.shared_ids, LIMIT, BUDGET)
    start = time.perf_counter()
    own = generator.sample(prompts, ANSWERS, 1.0, keys_of(prompts))
    seconds = time.perf_counter() - start
    again = generator.sample(prompts, ANSWERS, 1.0, keys_of(prompts, "again "))
    cooler = generator.sample(prompts, ANSWERS, COOLER, keys_of(prompts, "cooler "))
    return {
        "questions": len(prompts),
        "answers": ANSWERS,
        "transformers_against_vllm": compared(model, own, drawn),
        "transformers_against_itself": compared(model, own, again),
        f"transformers_against_itself_at_{COOLER}": compared(model, own, cooler),
        f"logprobs_of_vllm_at_{COOLER}": scored(generator, some(prompts), cool),
        "vllm_again_in_other_order": child["again"],
        "seconds": {"transformers": round(seconds, 1), **child["seconds"]},
        "versions": child["versions"],
    }


def scored(generator: Generator, prompts: Sequence[list[int]], drawn: Answers) -> dict[str, Any]:
    """How far vLLM's log-probabilities are from those that transformers gives the same tokens."""
    flat = [(prompt, each) for prompt, answers in zip(prompts, drawn, strict=True) for each in answers if each.ids]
    scores = generator.score([prompt for prompt, _ in flat], [each.ids for _, each in flat])
    differences = np.concatenate([np.subtract(each.logprobs, s) for (_, each), s in zip(flat, scores, strict=True)])
    return {
        "tokens": len(differences),
        "median_distance": round(float(np.median(np.abs(differences))), 4),
        **mean_of(differences.tolist()),
        "mean_logprob": round(float(np.mean(np.concatenate(scores))), 3),
    }


def drawn_by_vllm(place: str, data: Path, count: int) -> dict[str, Any]:
    """What vLLM draws: in a Python that has it."""
    from importlib.metadata import packages_distributions, version

    from anchorscope.answers.vllm import VllmGenerator

    model, _, prompts = load(place, data, count, weights=False)
    generator, keys = VllmGenerator(model, LIMIT, enforce_eager=True, max_model_len=512), keys_of(prompts)
    generator(prompts[:8])  # warms up
    start = time.perf_counter()
    answers = generator.sample(prompts, ANSWERS, 1.0, keys)
    seconds = time.perf_counter() - start
    again = generator.sample(prompts[::-1], ANSWERS, 1.0, keys[::-1])[::-1]
    cooler = generator.sample(some(prompts), 4, COOLER, some(keys))
    same = sum(
        a.ids == b.ids for one, other in zip(answers, again, strict=True) for a, b in zip(one, other, strict=True)
    )
    return {
        "answers": plain(answers),
        "cooler": plain(cooler),
        "again": {"identical": same, "of": len(prompts) * ANSWERS},
        "seconds": {"vllm": round(seconds, 1)},
        "versions": {"vllm": version(packages_distributions()["vllm"][0])},
    }


def some(of_each: list[T]) -> list[T]:
    """Those of the questions that are asked at the lower temperature: of all sets."""
    return of_each[:: max(1, len(of_each) // FEW)][:FEW]


def plain(answers: Answers) -> list[list[list[Any]]]:
    """As JSON keeps them."""
    return [[[each.ids, each.logprobs, each.ended] for each in drawn] for drawn in answers]


def main() -> None:
    """Run the steps and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", help="speed, vllm; default both")
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared/data/qa")
    parser.add_argument("--models", type=Path, default=Path.home() / ".cache" / "anchorscope-checks")
    parser.add_argument("--model", default="smollm2-135m", help="which of the models of checks/weights.py")
    parser.add_argument("--questions", type=int, default=100, help="of the comparison with vLLM")
    parser.add_argument("--vllm-python", help="a Python with vLLM and anchorscope")
    parser.add_argument("--drawn-by-vllm", metavar="MODEL", help=argparse.SUPPRESS)  # this file, in that Python
    options = parser.parse_args()
    data = options.data.resolve()
    if options.drawn_by_vllm:
        print(json.dumps(drawn_by_vllm(options.drawn_by_vllm, data, options.questions)))
        return
    place = str(unpacked(options.model, options.models))
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "speed": lambda: speed(place, data, 64),
        "vllm": lambda: against_vllm(place, data, options.questions, options.vllm_python),
    }
    figures = {}
    for name in options.steps or steps:
        figures[name] = steps[name]()
        print(f"{name}: {json.dumps(figures[name])}", file=sys.stderr, flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
