"""How long does a new user wait for a first chart?

    python checks/first_chart.py --data DIR --models DIR

Steps: `models` times the demo with both small models; `slow` times it with SmolLM2-135M as on a processor without
bfloat16 instructions.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from helpers.steps import COMMAND, Check, Figures, Options
from weights import NAMES, SMALL, unpacked

check = Check(__doc__)

SLOW = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}  # a processor without bfloat16 instructions


def demo(name: str, options: Options, runs: Path, **env: str) -> Figures:
    """One demo: seconds, dtype, exit code and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(words(name, options, runs), env={**os.environ, **env}, capture_output=True, text=True)
    seconds = round(time.perf_counter() - start)
    manifest = next(runs.glob("*/*/four-sets/manifest.json"))
    dtype = json.loads(manifest.read_text())["tables"]["answers"]["facts"]["dtype"]
    transcript = (done.stderr + done.stdout).splitlines()
    return {"seconds": seconds, "dtype": dtype, "exit": done.returncode, "transcript": transcript}


def words(name: str, options: Options, runs: Path) -> list[str]:
    """The command of a demo."""
    model = unpacked(name, options.models)
    return [*COMMAND, "demo", "--model", str(model), "--data", str(options.data), "--runs", str(runs)]


@check.step("data", "models")
def models(options: Options, work: Path) -> Figures:
    """Seconds with each small model, in the dtype that is fast here."""
    return {NAMES[name]: demo(name, options, work / name) for name in SMALL}


@check.step("data", "models")
def slow(options: Options, work: Path) -> Figures:
    """Seconds with SmolLM2-135M without bfloat16 instructions."""
    return demo("smollm2-135m", options, work, **SLOW)


if __name__ == "__main__":
    check()
