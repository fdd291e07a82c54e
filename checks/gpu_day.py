"""What only a real GPU can show: does it give the CPU's numbers, how fast is it, and what does it take?

    python checks/gpu_day.py --device cuda --data DIR --models DIR --study-model meta-llama/Llama-3.2-1B

checks/gpu_day.md says how to spend an hour with a rented GPU. With `--device cpu` everything runs without one. Steps:
`examined` lets the doctor look at SmolLM2-135M on the device, in float32 and bfloat16; `same_numbers` runs the tests
that compare whatever touches a model with the CPU; `speed` times a sweep over all conditions beside one plain pass;
`memory` compares the peak of a batch with what the plan of batches assumes; `vllm` compares greedy answers with vLLM's,
as it is written and compiled; `study` carries out a small study.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

import torch

import answers_by_batch_and_backend as backends
from anchorscope.models.load import Model, load_model
from anchorscope.models.prompts import Prompter
from anchorscope.questions.definition import PLAIN
from anchorscope.questions.file_rows import FileRows
from anchorscope.questions.row import to_question
from anchorscope.spans.make import SampleMaker
from anchorscope.study import ModelSpec, PromptSpec, TraceSpec
from anchorscope.traces.budget import MARGIN
from anchorscope.traces.passes import Passes
from anchorscope.traces.sweep import budget_of, trace_samples
from anchorscope.traces.tracer import Tracer
from helpers.models import loaded
from helpers.runs import study_on_files
from helpers.steps import COMMAND, ROOT, Check, Figures, Options
from weights import unpacked

check = Check(__doc__)
ROUNDS = 3
ANSWERED = 128  # questions that vLLM answers too
SMALLEST = "smollm2-135m"


Dtype = Literal["float32", "bfloat16"]


def on(options: Options, dtype: Dtype, device: str | None = None) -> Model:
    """SmolLM2-135M on the device."""
    place = str(unpacked(SMALLEST, options.models))
    return load_model(ModelSpec(id=place, name="SmolLM2-135M", dtype=dtype, device=device or options.device))


def wait(device: str) -> None:
    """Until the device has done what it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


@check.step("models")
def examined(options: Options, work: Path) -> Figures:
    """The self-test."""
    from anchorscope import doctor

    return {
        dtype: {
            one.name: one.detail if one.passed else f"{one.passed}: {one.detail}" for one in doctor(on(options, dtype))
        }
        for dtype in get_args(Dtype)
    }


@check.step()
def same_numbers(options: Options, work: Path) -> Figures:
    """Each operation on the device, for tiny models of every family in float32, beside the CPU's (tests/devices)."""
    tests = ["tests/devices/test_given_device.py", "--device", options.device, "-q"]
    done = subprocess.run([sys.executable, "-m", "pytest", *tests], cwd=ROOT, capture_output=True, text=True)
    return {"exit code": done.returncode, "said": done.stdout.splitlines()[-20:]}


class Traced:
    """Questions of TriviaQA with their first accepted answers, and a sweep over all conditions of them."""

    def __init__(self, options: Options, count: int) -> None:
        self.model, self.spec = on(options, options.dtype), TraceSpec()
        prompter = Prompter(self.model.tokenizer, PromptSpec(), self.model.wants_bos)
        maker, rows = SampleMaker(prompter), FileRows(options.data / "triviaqa.jsonl")
        asked = [to_question(row, PLAIN, [], str(number)) for number, row in islice(rows, 2 * count)]
        made = [maker(question, question.answers[0]) for question in asked]
        self.samples = [sample for sample in made if sample.spans.dropped is None][:count]
        self.tracer = Tracer(self.model, prompter.shared_ids, self.spec.sites)
        self.passes = Passes(self.spec, prompter.shared_ids, self.tracer.layers)

    def sweep(self) -> None:
        """All conditions."""
        trace_samples(self.tracer, self.samples, self.spec, self.passes)

    def bare(self) -> None:
        """The samples themselves, as one plain pass with nothing shared and nothing cut would have them."""
        shared = self.tracer.shared_ids
        ids = [[*shared, *each.answer.prompt_ids, *each.answer.answer_ids] for each in self.samples]
        width = max(map(len, ids))
        rows = torch.tensor([row + [0] * (width - len(row)) for row in ids], device=self.model.device)
        self.model.network.get_decoder()(rows, use_cache=False)

    def predicted(self) -> float:
        """Bytes that the formula says a batch of all samples takes, without its margin for holes."""
        rows = [self.passes.streams(sample) for sample in self.samples]
        slots = max(sum(len(stream.ids) for stream in row) for row in rows)
        return len(rows) * budget_of(self.tracer, self.passes, rows).cost(slots) / MARGIN


@check.step("data", "models")
def speed(options: Options, work: Path) -> Figures:
    """Seconds of a sweep over all conditions, beside one plain pass over the same samples, in turns."""
    traced = Traced(options, 32)
    seconds: dict[str, list[float]] = {"sweep": [], "bare": []}
    acts: dict[str, Callable[[], None]] = {"sweep": traced.sweep, "bare": traced.bare}
    for turn in range(ROUNDS + 1):
        for name, act in acts.items():
            wait(options.device)
            start = time.perf_counter()
            with torch.inference_mode():
                act()
            wait(options.device)
            if turn:  # the first warms up
                seconds[name].append(time.perf_counter() - start)
    ratios = [sweep / bare for sweep, bare in zip(seconds["sweep"], seconds["bare"], strict=True)]
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {**medians, "sweep / bare": statistics.median(ratios), "from": min(ratios), "to": max(ratios)}


@check.step("data", "models")
def memory(options: Options, work: Path) -> Figures:
    """Bytes of one batch beside the weights, as the formula says and, on a GPU, as the device counts them."""
    traced = Traced(options, 16)
    figures: Figures = {"predicted": traced.predicted()}
    if options.device.startswith("cuda"):
        _ = traced.tracer._prefix  # which is no part of a batch
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        traced.sweep()
        figures["measured"] = torch.cuda.max_memory_allocated() - before
    return figures


@check.step("data", "models", "vllm_python")
def vllm(options: Options, work: Path) -> Figures:
    """Greedy answers of transformers and of vLLM, as it is written and compiled, and their speed."""
    place = unpacked(SMALLEST, options.models)
    _, prompter = loaded(place, weights=False)
    prompts = backends.prompts_of(prompter, options.data, 1_000, ANSWERED)
    return {
        mode: backends.by_vllm(
            options.vllm_python, "greedy", place, prompter, prompts, work, options.dtype, mode == "compiled"
        )
        for mode in ("as it is written", "compiled")
    }


@check.step("data", "models")
def study(options: Options, work: Path) -> Figures:
    """A small study from questions to charts, with evidence: how long, and what it says."""
    known = options.study_model == SMALLEST
    model = {"id": str(unpacked(SMALLEST, options.models)) if known else options.study_model, "name": "model",
             "dtype": options.dtype, "device": options.device}  # fmt: skip
    path = study_on_files(
        work / "gpu-day.yaml", [model], options.data, {"triviaqa": options.questions},
        traces={"max_wrong": 100, "attention_samples": 20}, probes={"repeats": 1, "resamples": 300, "refit": []},
        evidence={"questions": 50, "answers": 4, "saliency_samples": 20, "donors": 2},
    )  # fmt: skip
    start = time.perf_counter()
    subprocess.run([*COMMAND, "run", path, "--runs", str(work / "runs")], check=True)
    seconds = time.perf_counter() - start
    told = [*COMMAND, "describe", str(work / "runs" / "gpu-day")]
    words = subprocess.run(told, check=True, capture_output=True, text=True).stdout
    return {"model": options.study_model, "seconds": round(seconds), "described": words.splitlines()[:20]}


check.option("--device", "Use this device", "cuda")
check.option("--study-model", "Carry out the small study with this model, by its id on the hub", SMALLEST)
check.option("--dtype", "Use this dtype for speed, memory, vLLM and the study", "bfloat16")
check.option("--questions", "Ask this many questions in the small study", 400)


if __name__ == "__main__":
    check()
