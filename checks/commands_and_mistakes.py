"""How fast does the command line answer, and what does it say to common mistakes?

    python checks/commands_and_mistakes.py --data DIR [--before CHECKOUT]

Steps: `commands` gives the CPU seconds of commands that need no model; `mistakes` makes ten mistakes and records exit
code, seconds and message. With --before, both also measure an older checkout. There is no network meanwhile.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from pathlib import Path

from helpers.steps import COMMAND, ROOT, Check, Figures, Options

check = Check(__doc__)

NOWHERE = "http://127.0.0.1:9"  # nothing listens on the discard port


def timed(source: Path, arguments: list[str], cwd: Path) -> Figures:
    """One command of a checkout: exit code, seconds of CPU time and by the clock, and its last lines."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "ANCHORSCOPE"))}
    env |= {
        "PYTHONPATH": str(source / "src"), "HF_HOME": str(cwd / "hf"), "HF_ENDPOINT": NOWHERE, "COLUMNS": "200",
    }  # fmt: skip
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([*COMMAND, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return {"exit": done.returncode, "cpu": round(cpu, 2), "wall": round(wall, 2), "said": said[-2:]}


def both(options: Options, arguments: list[str], cwd: Path) -> Figures:
    """The same command now and in the older checkout: the faster of two turns, when all files are in memory."""
    sources = {"now": ROOT} | ({"before": options.before.resolve()} if options.before else {})
    turns = {name: [timed(source, arguments, cwd) for _ in range(2)] for name, source in sources.items()}
    return {name: min(pair, key=lambda turn: turn["cpu"]) for name, pair in turns.items()}


@check.step()
def commands(options: Options, work: Path) -> Figures:
    """CPU seconds of commands that need no model."""
    return {
        " ".join(words): {name: turn["cpu"] for name, turn in both(options, words, work).items()}
        for words in (["--help"], ["validate", "qwen3"], ["studies"], ["status", "nowhere"], ["run", "nowhere.yaml"])
    }


@check.step("data")
def mistakes(options: Options, work: Path) -> Figures:
    """What happens after ten mistakes that a new user makes."""
    data = str(options.data)
    for name, file, content in (
        ("packed", "model.gguf", "GGUF"),
        ("unknown", "config.json", json.dumps({"model_type": "mamba"})),
    ):
        (work / name).mkdir()
        (work / name / file).write_text(content)
    study = {"name": "s", "models": ["a/b"], "datasets": [{"set": "popqa", "path": f"{data}/popqa.jsonl"}]}
    (work / "s.yaml").write_text(json.dumps(study))
    (work / "typo.yaml").write_text(json.dumps({**study, "traces": {"sites": ["residual"]}}))
    cases = {
        "no network, sets from the hub": ["run", "small-models"],
        "no network, model from the hub": ["run", "s.yaml"],
        "no network, doctor": ["doctor", "a/b"],
        "wrong --data": ["demo", "--model", "a/b", "--data", str(work / "nowhere")],
        "a folder that holds one .gguf": ["demo", "--model", str(work / "packed"), "--data", data],
        "a folder that is not there": ["demo", "--model", str(work / "none"), "--data", data],
        "an unknown family": ["demo", "--model", str(work / "unknown"), "--data", data],
        "a mistyped site": ["run", "typo.yaml"],
        "a mistyped dtype": ["demo", "--model", "a/b", "--dtype", "bfloat61", "--data", data],
        "a study that is not there": ["run", "smal-models"],
    }
    return {name: both(options, words, work) for name, words in cases.items()}


check.option("--before", "Also measure CHECKOUT, an older version of the code", type=Path, metavar="CHECKOUT")

if __name__ == "__main__":
    check()
