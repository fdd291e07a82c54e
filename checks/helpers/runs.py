"""Studies that checks carry out in processes of their own, how long and how large those processes get, and their files.

The names of the models are those of weights.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.steps import ROOT, SETS
from weights import unpacked

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "RAY_worker_niceness": "0", "HF_HUB_OFFLINE": "1"}
LIGHT_PROBES = {"repeats": 1, "folds": 3, "strengths": [0.001, 0.01], "resamples": 100}

# ru_maxrss survives exec and may be the parent's, so the process reads its own high-water mark
MEASURED = """
import atexit, re, sys
from pathlib import Path
from anchorscope.cli import main
peak, status = sys.argv.pop(1), Path("/proc/self/status")
atexit.register(lambda: Path(peak).write_text(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]))
main()
"""

RUNNER = """
import json, sys, time
import torch
torch.set_num_threads(1)
from pathlib import Path
from anchorscope import load_study
from anchorscope.run.pipeline import Pipeline
from anchorscope.store import Store
study, root, out = load_study(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
start = time.perf_counter()
with Store.writing(root, study) as store:
    run = Pipeline(store)
    run()
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
out.write_text(json.dumps({"seconds": time.perf_counter() - start, "times": run.times, "peak_mb": int(peak) / 1024}))
"""


# --- studies


def write(folder: Path, study: dict[str, Any], name: str, engine: dict[str, Any] | None = None) -> Path:
    """Write a study to a file, with an engine if one is given."""
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({**study, **({"engine": engine} if engine else {})}))
    return path


def study_on_files(path: Path, models: Sequence[Any], data: Path, samples: Mapping[str, int], **fields: Any) -> str:
    """Write a study of some models on so many questions of each local set; return its path."""
    sets = [{"set": name, "path": str(data / f"{name}.jsonl"), "sample": count} for name, count in samples.items()]
    return str(write(path.parent, {"name": path.stem, "models": models, "datasets": sets, **fields}, path.stem))


def real_model(name: str, models: Path, title: str, dtype: str = "bfloat16") -> dict[str, str]:
    """A real model as a study names it."""
    return {"id": str(unpacked(name, models)), "name": title, "dtype": dtype}


def small_model(folder: Path, models: Path) -> dict[str, str]:
    """A model with random weights, three layers and the tokenizer of SmolLM2, as a study names it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    source = unpacked("smollm2-135m", models)
    config = AutoConfig.from_pretrained(source)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "head_dim": 8}
    config.update({**sizes, "num_attention_heads": 4, "num_key_value_heads": 2})
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder / "small")
    AutoTokenizer.from_pretrained(source).save_pretrained(folder / "small")
    return {"id": str(folder / "small"), "name": "small", "dtype": "float32"}


def given_study(
    folder: Path, each: int, models: Sequence[dict[str, str]], data: Path, sets: Sequence[str] = SETS, **fields: Any
) -> dict[str, Any]:
    """A study of real questions with given answers: the first accepted one, or another question's."""
    given = []
    for name in sets:
        lines = (data / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")[:each]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        rows = [json.loads(line) for line in lines]
        for i, row in enumerate(rows):
            right = i % 3 == 0
            answer = (row if right else rows[(i + 7) % len(rows)])["answers"][0]
            given.append({"question": row["question"], "answer": answer, "label": right})
    (folder / "given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    return {
        "name": "s",
        "models": [*models],
        "datasets": [{"set": name, "path": str(folder / f"{name}.jsonl")} for name in sets],
        "answers": {"source": "file", "file": str(folder / "given.jsonl")},
        "probes": LIGHT_PROBES,
        **fields,
    }


# --- commands and runs


def measured(*arguments: str) -> dict[str, float]:
    """Carry out a command in a process of its own: its seconds, and its largest resident set in megabytes."""
    with tempfile.NamedTemporaryFile("r") as peak:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", MEASURED, peak.name, *arguments], stdout=subprocess.DEVNULL, check=True)
        return {"seconds": round(time.perf_counter() - start, 2), "peak_mb": round(int(peak.read()) / 1024, 1)}


def started(study: Path, root: Path) -> tuple[subprocess.Popen[str], Path]:
    """A run that was started in a process with one thread, and the file in which the process will report."""
    env = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT / "src")}
    out = root.with_suffix(".json")
    out.unlink(missing_ok=True)
    words = [sys.executable, "-c", RUNNER, str(study), str(root), str(out)]
    return subprocess.Popen(words, env=env, text=True, stderr=subprocess.PIPE), out


def carried_out(study: Path, root: Path) -> dict[str, Any]:
    """The report of a run that is carried out from the start."""
    shutil.rmtree(root, ignore_errors=True)
    process, out = started(study, root)
    finish(process)
    report: dict[str, Any] = json.loads(out.read_text())
    return report


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for a run, and stop the check with the run's last lines when the run fails."""
    _, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(errors[-3000:])


# --- files


def content(root: Path) -> dict[str, bytes]:
    """Every file of a run, by its path inside the run, but locks and the command line, whose names begin with a dot."""
    files = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def different(one: Path, other: Path) -> list[str]:
    """Files that only one of two runs has, or whose bytes differ."""
    a, b = content(one), content(other)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def questions_in(data: Path, name: str, rows: slice = slice(None)) -> list[str]:
    """The questions of a set."""
    lines = (data / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line)["question"] for line in [each for each in lines if each][rows]]
