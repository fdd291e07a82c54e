"""The transformers and the vLLM backend on the same 512 questions, in one process: `against_vllm.py MODEL DATA`.

Run by checks/answers.py with the Python of an environment that has vLLM. The last line is one JSON object.
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
os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))  # else vLLM leaves one thread to both

REPEATS = 3


def main() -> None:
    """Interleave the two backends and print identical answers and the ratio of the rates."""
    from anchorscope import ModelSpec, PromptSpec
    from anchorscope.answers.generate import Generator
    from anchorscope.answers.vllm import VllmGenerator
    from anchorscope.models.load import load_model
    from anchorscope.models.prompts import Prompter

    model = load_model(ModelSpec(id=sys.argv[1], name="m", dtype="bfloat16"))
    prompter = Prompter(model.tokenizer, PromptSpec(), model.wants_bos)
    questions = []
    for name in ("popqa", "triviaqa", "hotpotqa", "nq"):
        lines = (Path(sys.argv[2]) / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
        questions += [json.loads(line)["question"] for line in lines[1_000:1_128]]
    prompts = [prompt.ids for prompt in prompter.many([(question, None) for question in questions])]
    backends: dict[str, Any] = {
        "transformers": Generator(model, prompter.shared_ids, 24, 8192),
        "vllm": VllmGenerator(model, 24, enforce_eager=True, max_model_len=512),
    }
    seconds: dict[str, list[float]] = {name: [] for name in backends}
    answers: dict[str, list[list[int]]] = {}
    for repeat in range(REPEATS + 1):
        for name, backend in backends.items():
            start = time.perf_counter()
            answers[name] = [made.ids for made in backend(prompts)]
            if repeat:  # the first is a warm-up
                seconds[name].append(time.perf_counter() - start)
    same = sum(a == b for a, b in zip(answers["transformers"], answers["vllm"], strict=True))
    rates = {name: len(prompts) / statistics.median(times) for name, times in seconds.items()}
    found = {"identical": same, "of": len(prompts), "ratio_of_rates": round(rates["transformers"] / rates["vllm"], 2)}
    print(json.dumps({**found, "questions_a_second": {name: round(rate, 1) for name, rate in rates.items()}}))


if __name__ == "__main__":
    main()
