"""How long does a new user wait for a first chart, and what does `anchorscope demo` show meanwhile?

    python checks/first_chart.py --data DIR --models DIR

Steps: `models` times the demo with both small models; `slow` times it with SmolLM2-135M as on a processor without
bfloat16 instructions; `terminal` records what a terminal shows.
"""

from __future__ import annotations

import json
import os
import pty
import re
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


@check.step("data", "models")
def terminal(options: Options, work: Path) -> list[str]:
    """What a terminal shows with SmolLM2-135M, with the last state of every progress bar."""
    seen: list[bytes] = []

    def read(handle: int) -> bytes:
        seen.append(os.read(handle, 1 << 16))
        return seen[-1]

    os.environ["COLUMNS"] = "120"
    with Path(os.devnull).open("wb") as nothing:  # pty.spawn copies everything to standard output
        kept = os.dup(1)
        os.dup2(nothing.fileno(), 1)
        try:
            pty.spawn(words("smollm2-135m", options, work), read)
        finally:
            os.dup2(kept, 1)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(seen).decode(errors="replace"))
    last: dict[str, str] = {}
    for line in re.split(r"[\r\n]+", text):
        shown = line.strip(" ⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
        last[shown.split("  ")[0].split("━")[0]] = shown
    return [line for line in last.values() if line]


if __name__ == "__main__":
    check()
