"""What answers and exact tokens must show, on real models: `make verify-answers`. The last line is one JSON object.

Steps (all by default, or name some): accuracy, batches, vllm, grading, spans, kill, memory. `vllm` needs a Python with
vLLM and anchorscope in it, given as --vllm-python; without it the step is left out and says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anchorscope import ModelSpec, PromptSpec
from anchorscope.pathways.intervals import wilson
from anchorscope.questions.definition import known_sets
from anchorscope.spans.samples import summary
from anchorscope.store import Store
from foundation import PROBE
from weights import NAMES, unpacked

COMMAND = [sys.executable, "-m", "anchorscope.cli"]
SMALL = ("smollm2-135m", "gemma-3-270m")


def write_study(path: Path, models: dict[str, Path], data: Path, sample: int, sets: list[str], **fields: Any) -> Path:
    """A study of these models, in bfloat16, on local files."""
    study = {
        "name": path.stem,
        "models": [{"id": str(place), "name": name, "dtype": "bfloat16"} for name, place in models.items()],
        "datasets": [{"set": name, "path": str(data / f"{name}.jsonl"), "sample": sample} for name in sets],
        **fields,
    }
    path.write_text(json.dumps(study))
    return path


def read_questions(data: Path, name: str, count: int) -> list[str]:
    """The first questions of a set."""
    lines = (data / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")[:count]
    return [json.loads(line)["question"] for line in lines]


def accuracy(data: Path, folder: Path, work: Path) -> dict[str, Any]:
    """1,000 questions of each set, both models, 4-shot, through the command line."""
    models = {NAMES[name]: unpacked(name, folder) for name in SMALL}
    study = write_study(work / "accuracy.yaml", models, data, 1_000, list(known_sets()))
    subprocess.run([*COMMAND, "answer", str(study), "--runs", str(work)], check=True, stdout=subprocess.DEVNULL)
    store, found = Store.open(work / "accuracy"), {}
    for model in models:
        for name in known_sets():
            counts = summary(store.results(model, name))
            low, high = wilson(counts["right"], counts["answers"])
            percents = [round(100 * value, 1) for value in (counts["right"] / counts["answers"], low, high)]
            found[f"{model}/{name}"] = {"percent": percents, **counts}
    return found


def batches(data: Path, folder: Path, work: Path) -> dict[str, Any]:
    """Budgets that give 1, 7 and 64 rows, shuffled order: the same token ids?"""
    from anchorscope.answers.generate import Generator
    from anchorscope.models.load import load_model
    from anchorscope.models.prompts import Prompter

    found = {}
    questions = [question for name in known_sets() for question in read_questions(data, name, 50)]
    for name in SMALL:
        for dtype in ("float32", "bfloat16"):
            spec = ModelSpec.model_validate({"id": str(unpacked(name, folder)), "name": "m", "dtype": dtype})
            model = load_model(spec)
            prompter = Prompter(model.tokenizer, PromptSpec(), model.wants_bos)
            prompts = [prompt.ids for prompt in prompter.many([(question, None) for question in questions])]
            longest = max(len(prompt) for prompt in prompts) - len(prompter.shared_ids) + 24
            answers, largest = [], []
            for rows, seed in ((1, 0), (7, 1), (64, 2)):
                generator = Generator(model, prompter.shared_ids, 24, rows * longest if rows > 1 else 1)
                order = random.Random(seed).sample(range(len(prompts)), len(prompts))
                made = generator([prompts[i] for i in order])
                answers.append([made[order.index(i)].ids for i in range(len(prompts))])
                largest.append(max(len(batch) for batch in generator.plan([len(prompts[i]) for i in order])))
            same = sum(a == b == c for a, b, c in zip(*answers, strict=True))
            found[f"{NAMES[name]}/{dtype}"] = {"identical": same, "of": len(prompts), "largest_batches": largest}
    return found


def vllm(data: Path, folder: Path, python: str | None) -> dict[str, Any]:
    """Both backends on the same 512 questions, in one process of an environment that has vLLM."""
    if python is None:
        return {"left out": "no --vllm-python was given"}
    script = Path(__file__).with_name("against_vllm.py")
    found = {}
    for name in SMALL:
        done = subprocess.run(
            [python, str(script), str(unpacked(name, folder)), str(data)], check=True, capture_output=True, text=True
        )
        found[NAMES[name]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def grading(data: Path) -> dict[str, Any]:
    """The two figures of the grader, before and after."""
    script = Path(__file__).with_name("grading.py")
    done = subprocess.run(
        [sys.executable, str(script), "--data", str(data)], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def spans(data: Path, folder: Path) -> dict[str, Any]:
    """Every question of the four sets through three tokenizers: does each token find its characters?"""
    from anchorscope.models.load import load_tokenizer, wants_bos
    from anchorscope.models.prompts import Prompter
    from anchorscope.models.source import find_model
    from anchorscope.spans.alignment import align

    found = {}
    for name, title in NAMES.items():
        spec = ModelSpec(id=str(unpacked(name, folder)), name="m")
        source = find_model(spec, Path())
        tokenizer = load_tokenizer(spec, source)
        prompter = Prompter(tokenizer, PromptSpec(), wants_bos(tokenizer, source))
        good = total = 0
        start = time.perf_counter()
        for part in known_sets():
            questions = read_questions(data, part, -1)
            for first in range(0, len(questions), 1_000):
                for prompt in prompter.many([(question, None) for question in questions[first : first + 1_000]]):
                    total += 1
                    ranges = align(tokenizer, prompt.ids, prompt.text, token=prompt.bos)
                    good += ranges is not None and ranges[-1][1] == len(prompt.text)
        found[title] = {"round_trip": good, "of": total, "seconds": round(time.perf_counter() - start, 1)}
    return found


def digest(folder: Path) -> dict[str, str]:
    """Hash of every table and manifest."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def kill(data: Path, folder: Path, work: Path) -> dict[str, Any]:
    """`anchorscope answer` killed at five random moments and resumed, against an undisturbed run."""
    models = {NAMES["smollm2-135m"]: unpacked("smollm2-135m", folder)}
    study = write_study(work / "killed.yaml", models, data, 300, ["popqa", "nq"], shard_rows=50)
    start = time.perf_counter()
    subprocess.run(
        [*COMMAND, "answer", str(study), "--runs", str(work / "calm")], check=True, stdout=subprocess.DEVNULL
    )
    seconds, rng, kills, at = time.perf_counter() - start, random.Random(2), 0, []
    command = [*COMMAND, "answer", str(study), "--runs", str(work / "rough")]
    while kills < 5:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(4, max(8, seconds * 0.6)))
        process.send_signal(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            kills += 1
            shards = sorted((work / "rough").rglob("answers/*.parquet"))
            at.append(len(shards))
            for shard in rng.sample(shards, len(shards) // 2):  # so that there is always something left to do
                shard.unlink()
        elif len(list((work / "rough").rglob("answers/*.parquet"))) == 12:
            next((work / "rough").rglob("answers/*.parquet")).unlink()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    same = digest(work / "calm") == digest(work / "rough")
    return {"kills": kills, "shards": 12, "shards_there_at_each_kill": at, "identical": same}


def memory(data: Path, folder: Path, work: Path) -> dict[str, Any]:
    """Peak memory of `anchorscope answer` on 1,000 and on 14,000 questions."""
    models = {NAMES["smollm2-135m"]: unpacked("smollm2-135m", folder)}
    found = {}
    for count in (1_000, 14_000):
        study = write_study(work / f"memory-{count}.yaml", models, data, count, ["popqa"])
        with tempfile.NamedTemporaryFile("r") as peak:
            start = time.perf_counter()
            arguments = [peak.name, "answer", str(study), "--runs", str(work / "memory")]
            subprocess.run([sys.executable, "-c", PROBE, *arguments], check=True, stdout=subprocess.DEVNULL)
            seconds = round(time.perf_counter() - start, 1)
            found[f"{count}"] = {"peak_mb": round(int(peak.read()) / 1024), "seconds": seconds}
    return found


def main() -> None:
    """Run the steps and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", help="which steps; default all")
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared/data/qa")
    parser.add_argument("--models", type=Path, default=Path.home() / ".cache" / "anchorscope-checks")
    parser.add_argument("--vllm-python", help="a Python with vLLM and anchorscope")
    options = parser.parse_args()
    data, folder = options.data.resolve(), options.models
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            "accuracy": lambda: accuracy(data, folder, work),
            "batches": lambda: batches(data, folder, work),
            "vllm": lambda: vllm(data, folder, options.vllm_python),
            "grading": lambda: grading(data),
            "spans": lambda: spans(data, folder),
            "kill": lambda: kill(data, folder, work),
            "memory": lambda: memory(data, folder, work),
        }
        figures = {}
        for name in options.steps or steps:
            figures[name] = steps[name]()
            print(f"{name}: {json.dumps(figures[name])}", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
