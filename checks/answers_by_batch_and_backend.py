"""Are a model's answers the same whatever the batch size and the backend, and how fast are they?

    python checks/answers_by_batch_and_backend.py --data DIR --models DIR [--vllm-python PYTHON]

Steps: `batches` answers the same questions in batches of 1, 7 and 64 rows; `greedy` compares the greedy answers and the
speed of transformers and vLLM; `sampled` compares the distributions from which both sample 16 answers a question, with
transformers at another temperature to show what a difference looks like. `greedy` and `sampled` need --vllm-python.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anchorscope.answers.generate import Generated, Generator
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter
from helpers.models import loaded
from helpers.runs import questions_in
from helpers.steps import SETS, Check, Figures, Options, last_json
from weights import NAMES, SMALL, unpacked

check = Check(__doc__)

ANSWERS, LIMIT, BUDGET = 16, 24, 8192
COOLER = 0.7  # a temperature whose answers must be seen to differ
FEW = 24  # questions that vLLM answers at COOLER, for their log-probabilities

Answers = list[list[Generated]]
"""All answers to each question."""
Prompts = list[list[int]]


def prompts_of(prompter: Prompter, data: Path, first: int, count: int) -> Prompts:
    """The prompts of so many questions, an equal number of each set."""
    rows = slice(first, first + count // len(SETS))
    questions = [(question, None) for name in SETS for question in questions_in(data, name, rows)]
    return [prompt.ids for prompt in prompter.many(questions)]


@check.step("data", "models")
def batches(options: Options, work: Path) -> Figures:
    """Count the answers with the same tokens in batches of 1, 7 and 64 rows, each in another order."""
    figures = {}
    for name in SMALL:
        for dtype in ("float32", "bfloat16"):
            model, prompter = loaded(unpacked(name, options.models), dtype)
            prompts = prompts_of(prompter, options.data, 0, 200)
            longest = max(len(prompt) for prompt in prompts) - len(prompter.shared_ids) + LIMIT
            answers, largest = [], []
            for rows, seed in ((1, 0), (7, 1), (64, 2)):
                generator = Generator(model, prompter.shared_ids, LIMIT, rows * longest if rows > 1 else 1)
                order = random.Random(seed).sample(range(len(prompts)), len(prompts))
                made = generator([prompts[i] for i in order])
                answers.append([made[order.index(i)].ids for i in range(len(prompts))])
                largest.append(max(len(batch) for batch in generator.plan([len(prompts[i]) for i in order])))
            same = sum(a == b == c for a, b, c in zip(*answers, strict=True))
            figures[f"{NAMES[name]}/{dtype}"] = {"identical": same, "of": len(prompts), "largest_batches": largest}
    return figures


# --- against vLLM


def by_vllm(
    python: str,
    what: str,
    place: Path,
    prompter: Prompter,
    prompts: Prompts,
    work: Path,
    dtype: str = "bfloat16",
    compiled: bool = False,
) -> Figures:
    """What helpers/vllm_answers.py prints, run by a Python with vLLM."""
    task = {
        "shared_ids": prompter.shared_ids, "prompts": prompts, "limit": LIMIT, "budget": BUDGET, "answers": ANSWERS,
        "cooler": some(range(len(prompts))), "temperature": COOLER,
        "dtype": dtype, "compiled": compiled,
    }  # fmt: skip
    (work / "task.json").write_text(json.dumps(task))
    script = Path(__file__).resolve().parent / "helpers" / "vllm_answers.py"
    words = [python, str(script), what, str(place), str(work / "task.json")]
    report: dict[str, Any] = last_json(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return report


def some(rows: Sequence[int]) -> list[int]:
    """The questions that vLLM answers at the lower temperature: some of each set."""
    return list(rows[:: max(1, len(rows) // FEW)][:FEW])


@check.step("data", "models", "vllm_python")
def greedy(options: Options, work: Path) -> Figures:
    """Compare greedy answers of both backends to 512 questions, and their speed."""
    figures = {}
    for name in SMALL:
        place = unpacked(name, options.models)
        _, prompter = loaded(place, weights=False)
        prompts = prompts_of(prompter, options.data, 1_000, 512)
        figures[NAMES[name]] = by_vllm(options.vllm_python, "greedy", place, prompter, prompts, work)
    return figures


@check.step("data", "models", "vllm_python")
def sampled(options: Options, work: Path) -> Figures:
    """Compare the distributions from which both backends sample."""
    place = unpacked("smollm2-135m", options.models)
    model, prompter = loaded(place)
    prompts = prompts_of(prompter, options.data, 1_000, options.questions)
    child = by_vllm(options.vllm_python, "sampled", place, prompter, prompts, work)
    drawn, cool = (
        [[Generated(*each) for each in answers] for answers in child[kind]] for kind in ("answers", "cooler")
    )
    generator = Generator(model, prompter.shared_ids, LIMIT, BUDGET)
    start = time.perf_counter()
    own = generator.sample(prompts, ANSWERS, 1.0, keys_of(prompts))
    seconds = time.perf_counter() - start
    again = generator.sample(prompts, ANSWERS, 1.0, keys_of(prompts, "again "))
    cooler = generator.sample(prompts, ANSWERS, COOLER, keys_of(prompts, "cooler "))
    cooled = [prompts[i] for i in some(range(len(prompts)))]
    return {
        "questions": len(prompts),
        "answers": ANSWERS,
        "transformers_against_vllm": compared(model, own, drawn),
        "transformers_against_itself": compared(model, own, again),
        f"transformers_against_itself_at_{COOLER}": compared(model, own, cooler),
        f"logprobs_of_vllm_at_{COOLER}": scored(generator, cooled, cool),
        "vllm_again_in_other_order": child["again"],
        "seconds": {"transformers": round(seconds, 1), **child["seconds"]},
        "versions": child["versions"],
    }


def keys_of(prompts: Sequence[Any], prefix: str = "") -> list[str]:
    """A key for each prompt, from which its answers are drawn."""
    return [f"{prefix}{i}" for i in range(len(prompts))]


def compared(model: Model, first: Answers, second: Answers) -> Figures:
    """Compare two sets of draws: distinct answers, lengths, log-probabilities, and distributions."""

    def text(answer: Generated) -> str:
        return " ".join(model.tokenizer.decode(answer.ids, skip_special_tokens=True).casefold().split())

    measures: dict[str, Callable[[list[Generated]], float]] = {
        "distinct answers": lambda drawn: len({text(each) for each in drawn}),
        "tokens": lambda drawn: statistics.mean(len(each.ids) for each in drawn),
        "log-probability of the first": lambda drawn: statistics.mean(each.logprobs[0] for each in drawn if each.ids),
    }
    pairs = [pair for pair in zip(first, second, strict=True) if all(any(each.ids for each in drawn) for drawn in pair)]
    figures: Figures = {}
    for name, measure in measures.items():
        values = [(float(measure(a)), float(measure(b))) for a, b in pairs]
        figures[name] = {
            "first": mean_of([a for a, _ in values]),
            "second": mean_of([b for _, b in values]),
            "difference": mean_of([b - a for a, b in values]),
        }
    tokens, texts = (
        [[[of(each) for each in drawn] for drawn in answers] for answers in (first, second)]
        for of in (lambda each: each.ids[0] if each.ids else None, text)
    )
    return {**figures, "first tokens apart": apart(*tokens), "answers apart": apart(*texts)}


def apart(first: Sequence[Sequence[Hashable]], second: Sequence[Sequence[Hashable]]) -> Figures:
    """Squared distance of two distributions, unbiased, as a mean over questions: about 0 where they are the same."""
    rows = [(agreement(a), agreement(b), agreement(a, b)) for a, b in zip(first, second, strict=True)]
    within, other, across = (round(statistics.mean(column), 4) for column in zip(*rows, strict=True))
    distances = [a + b - 2 * c for a, b, c in rows]
    return {"two_of_the_first": within, "two_of_the_second": other, "one_of_either": across, **mean_of(distances)}


def agreement(first: Sequence[Hashable], second: Sequence[Hashable] | None = None) -> float:
    """How often two draws are the same: two draws of one list, or one draw of each list."""
    mine, n = Counter(first), len(first)
    if second is None:
        return sum(count * (count - 1) for count in mine.values()) / (n * (n - 1))
    theirs = Counter(second)
    return sum(count * theirs[value] for value, count in mine.items()) / (n * len(second))


def mean_of(values: Sequence[float]) -> Figures:
    """A mean with its 95 % interval."""
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
    return {"mean": round(mean, 4), "interval": [round(mean - 1.96 * error, 4), round(mean + 1.96 * error, 4)]}


def scored(generator: Generator, prompts: Prompts, drawn: Answers) -> Figures:
    """How far vLLM's log-probabilities are from those that transformers gives to the same tokens."""
    flat = [(prompt, each) for prompt, answers in zip(prompts, drawn, strict=True) for each in answers if each.ids]
    scores = generator.score([prompt for prompt, _ in flat], [each.ids for _, each in flat])
    differences = np.concatenate([np.subtract(each.logprobs, s) for (_, each), s in zip(flat, scores, strict=True)])
    return {
        "tokens": len(differences),
        "median_distance": round(float(np.median(np.abs(differences))), 4),
        **mean_of(differences.tolist()),
        "mean_logprob": round(float(np.mean(np.concatenate(scores))), 3),
    }


check.option("--questions", "Sample answers to this many questions", 100)

if __name__ == "__main__":
    check()
