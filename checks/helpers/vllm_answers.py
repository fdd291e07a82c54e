"""Answers of vLLM: `vllm_answers.py greedy|sampled MODEL_FOLDER TASK.json`, run by a Python with vLLM and anchorscope.

TASK.json is written by checks/answers_by_batch_and_backend.py. `greedy` times both backends in turns, in one process;
`sampled` draws with vLLM alone. The last line is one JSON object.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))  # otherwise vLLM takes all threads but one

REPEATS = 3


def greedy(model: Any, task: dict[str, Any]) -> dict[str, Any]:
    """How many greedy answers are the same token by token, and the ratio of questions a second."""
    from anchorscope.answers.generate import Generator
    from anchorscope.answers.vllm import VllmGenerator

    prompts, limit = task["prompts"], task["limit"]
    backends: dict[str, Any] = {
        "transformers": Generator(model, task["shared_ids"], limit, task["budget"]),
        "vllm": VllmGenerator(model, limit, enforce_eager=not task["compiled"], max_model_len=512),
    }
    seconds: dict[str, list[float]] = {name: [] for name in backends}
    answers: dict[str, list[list[int]]] = {}
    for repeat in range(REPEATS + 1):
        for name, backend in backends.items():
            start = time.perf_counter()
            answers[name] = [answer.ids for answer in backend(prompts)]
            if repeat:  # the first round warms up
                seconds[name].append(time.perf_counter() - start)
    same = sum(a == b for a, b in zip(answers["transformers"], answers["vllm"], strict=True))
    rates = {name: len(prompts) / statistics.median(times) for name, times in seconds.items()}
    ratio = round(rates["transformers"] / rates["vllm"], 2)
    each = {name: round(rate, 1) for name, rate in rates.items()}
    return {"identical": same, "of": len(prompts), "ratio_of_rates": ratio, "questions_a_second": each}


def sampled(model: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Sampled answers; the same in another order; and some at a lower temperature."""
    from importlib.metadata import packages_distributions, version

    from anchorscope.answers.vllm import VllmGenerator

    prompts, count = task["prompts"], task["answers"]
    generator = VllmGenerator(model, task["limit"], enforce_eager=True, max_model_len=512)
    keys = [str(i) for i in range(len(prompts))]
    generator(prompts[:8])  # warms up
    start = time.perf_counter()
    answers = generator.sample(prompts, count, 1.0, keys)
    seconds = time.perf_counter() - start
    again = generator.sample(prompts[::-1], count, 1.0, keys[::-1])[::-1]
    rows = task["cooler"]
    cooler = generator.sample([prompts[i] for i in rows], 4, task["temperature"], [keys[i] for i in rows])
    pairs = zip(answers, again, strict=True)
    same = sum(a.ids == b.ids for one, other in pairs for a, b in zip(one, other, strict=True))
    plain = {
        name: [[[each.ids, each.logprobs, each.ended] for each in drawn] for drawn in made]
        for name, made in (("answers", answers), ("cooler", cooler))
    }
    return {
        **plain,
        "again": {"identical": same, "of": len(prompts) * count},
        "seconds": {"vllm": round(seconds, 1)},
        "versions": {"vllm": version(packages_distributions()["vllm"][0])},
    }


def main() -> None:
    """Load the model and carry out one of the two."""
    from anchorscope import ModelSpec
    from anchorscope.models.load import load_model

    what, folder, file = sys.argv[1:]
    task = json.loads(Path(file).read_text())
    model = load_model(ModelSpec(id=folder, name="m", dtype=task["dtype"]), weights=what == "greedy")
    print(json.dumps((greedy if what == "greedy" else sampled)(model, task)))


if __name__ == "__main__":
    main()
