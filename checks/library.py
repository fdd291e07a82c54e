"""What the rooms, the library and the first ten minutes must show: `make verify-library`. Its last line is JSON.

Steps (all by default, or name some): rooms, same, page, families, commands, mistakes, demo. `same` clones this
repository at the commit before the rooms and at the commit that made them, and compares a small seeded run byte by
byte. `commands` and `mistakes` measure an older checkout too when it is given as --before.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pty
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weights import fetch, unpacked

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from hub_server import Hub, Repo, serve  # type: ignore[import-not-found]  # noqa: E402
from tiny import FAMILIES, load_tiny  # type: ignore[import-not-found]  # noqa: E402

BEFORE, ROOMS = "4b0a923", "49d1b5c"  # the last commit without rooms, and the one that made them
SLOW = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}  # a processor without bfloat16 instructions
NOWHERE = "http://127.0.0.1:9"  # nothing listens on the discard port
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


def rooms() -> dict[str, Any]:
    """The folders, how long their files are, and the contracts on who may import whom."""
    source = ROOT / "src" / "anchorscope"
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in source.rglob("*.py")}
    folders = sorted({path.relative_to(source).parts[0] for path in lengths if path.parent != source})
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run([sys.executable, "-c", command, "--no-logo"], cwd=ROOT, capture_output=True, text=True)
    ordered = sorted(lengths.values())
    return {
        "rooms": {
            room: sorted(p.name for p in (source / room).glob("*.py") if p.name != "__init__.py") for room in folders
        },
        "files": len(ordered),
        "median_lines": ordered[len(ordered) // 2],
        "longest": max(ordered),
        "contracts": re.search(r"Contracts: (.*)\.", done.stdout)[1],  # type: ignore[index]
    }


def same(data: Path, folder: Path, work: Path) -> dict[str, Any]:
    """A small seeded run, from questions to figures and maps, before and after the rooms: the same bytes?"""
    study = {
        "name": "same",
        "models": [{"id": str(unpacked("smollm2-135m", folder)), "name": "SmolLM2", "dtype": "float32"}],
        "datasets": [{"set": "popqa", "sample": 500}, {"set": "triviaqa", "sample": 400}],
        "traces": {"sites": ["mlp", "resid"], "positions": ["answer_last", "final"], "wrong": 120},
        "map": {"correct": 12, "wrong": 12},
        "probes": {"resamples": 200, "repeats": 2},
        "shard_rows": 128,
    }
    (work / "same.yaml").write_text(json.dumps(study))
    digests = []
    for commit in (BEFORE, ROOMS):
        place = work / commit
        subprocess.run(["git", "clone", "-q", str(ROOT), str(place)], check=True)
        subprocess.run(["git", "checkout", "-q", commit], cwd=place, check=True)
        command = [sys.executable, "-m", "anchorscope.cli", "run", str(work / "same.yaml"), "--data", str(data)]
        env = {**os.environ, "PYTHONPATH": str(place / "src")}
        subprocess.run([*command, "--runs", str(place / "runs")], env=env, check=True, stdout=subprocess.DEVNULL)
        files = [p for p in sorted((place / "runs").rglob("*")) if p.is_file() and p.name not in (".lock", ".holder")]
        digests.append({str(p.relative_to(place)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files})
    one, other = digests
    return {"files": len(one), "differ": sorted(k for k in {*one, *other} if one.get(k) != other.get(k))}


def page(data: Path, folder: Path, work: Path) -> dict[str, Any]:
    """docs/library.md with the real model: every block runs, and prints what the page says it prints."""
    blocks = BLOCK.findall((ROOT / "docs" / "library.md").read_text(encoding="utf-8"))
    python = [body for language, body in blocks if language == "python"]
    script = "\n".join(f"print('=== {number}')\n{body}" for number, body in enumerate(python))
    (work / "page.py").write_text(script)
    (work / "qa").symlink_to(data)
    model = unpacked("smollm2-135m", folder)
    with serve() as hub:
        assert isinstance(hub, Hub)
        hub.repos[f"models/{MODEL}"] = Repo({path.name: path.read_bytes() for path in model.iterdir()})
        env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(work / "hf")}
        done = subprocess.run([sys.executable, "page.py"], cwd=work, env=env, capture_output=True, text=True)
    printed = dict(re.findall(r"^=== (\d+)\n(.*?)(?=^=== |\Z)", done.stdout, re.MULTILINE | re.DOTALL))
    shown: dict[str, str] = {}
    number = -1
    for language, body in blocks:
        number += language == "python"
        if language == "text":
            shown[str(number)] = body
    wrong = {n: printed.get(n, "") for n, text in shown.items() if printed.get(n, "").strip() != text.strip()}
    lines = [len([line for line in body.splitlines() if line.strip()]) for body in python]
    return {"exit": done.returncode, "blocks": len(python), "longest": max(lines), "shown": len(shown), "wrong": wrong}


def families(work: Path) -> dict[str, Any]:
    """The doctor on random tiny models of every family, in float32."""
    import anchorscope

    failed = {}
    for family in FAMILIES:
        checks = anchorscope.doctor(load_tiny(family, work / family, "float32"))
        failed[family] = [check.name for check in checks if check.passed is False]
    return {"families": len(failed), "failed": {name: checks for name, checks in failed.items() if checks}}


def timed(source: Path, arguments: list[str], cwd: Path, **env: str) -> dict[str, Any]:
    """One command of a checkout: exit code, seconds of CPU and by the clock, and what it said first."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "ANCHORSCOPE"))}
    clean |= {
        "PYTHONPATH": str(source / "src"),
        "HF_HOME": str(cwd / "hf"),
        "HF_ENDPOINT": NOWHERE,
        "COLUMNS": "200",
        **env,
    }
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "anchorscope.cli", *arguments]
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=300)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return {"exit": done.returncode, "cpu": round(cpu, 2), "wall": round(wall, 2), "said": said[-2:]}


def both(before: Path | None, arguments: list[str], cwd: Path, **env: str) -> dict[str, Any]:
    """The same command here, and in an older checkout: the better of two turns, so that nothing is read from disk."""
    sources = {"now": ROOT} | ({"before": before} if before else {})
    found = {}
    for name, source in sources.items():
        turns = [timed(source, arguments, cwd, **env) for _ in range(2)]
        found[name] = min(turns, key=lambda turn: turn["cpu"])
    return found


def commands(before: Path | None, work: Path) -> dict[str, Any]:
    """CPU seconds of commands that need no model."""
    return {
        " ".join(words): {name: turn["cpu"] for name, turn in both(before, words, work).items()}
        for words in (["--help"], ["validate", "qwen3"], ["studies"], ["status", "nowhere"], ["run", "nowhere.yaml"])
    }


def mistakes(before: Path | None, data: Path, folder: Path, work: Path) -> dict[str, Any]:
    """What a person gets wrong first, the answer, and how long it takes."""
    packed = fetch("smollm2-135m", folder / "packed").parent
    (work / "unknown").mkdir()
    (work / "unknown" / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    study = {"name": "s", "models": ["a/b"], "datasets": [{"set": "popqa", "path": str(data / "popqa.jsonl")}]}
    (work / "s.yaml").write_text(json.dumps(study))
    (work / "typo.yaml").write_text(json.dumps({**study, "traces": {"sites": ["residual"]}}))
    cases = {
        "no network, sets from the hub": ["run", "small-models"],
        "no network, model from the hub": ["run", "s.yaml"],
        "no network, doctor": ["doctor", "a/b"],
        "wrong --data": ["demo", "--model", "a/b", "--data", str(work / "nowhere")],
        "a folder that holds one .gguf": ["demo", "--model", str(packed), "--data", str(data)],
        "a folder that is not there": ["demo", "--model", str(work / "none"), "--data", str(data)],
        "an unknown family": ["demo", "--model", str(work / "unknown"), "--data", str(data)],
        "a mistyped site": ["run", "typo.yaml"],
        "a mistyped dtype": ["demo", "--model", "a/b", "--dtype", "bfloat61", "--data", str(data)],
        "a study that is not there": ["run", "smal-models"],
    }
    return {name: both(before, words, work) for name, words in cases.items()}


def demo(data: Path, folder: Path, work: Path) -> dict[str, Any]:
    """A first chart: into a file where bfloat16 is what this machine makes of it, and in float32; and on a terminal."""
    model = str(unpacked("smollm2-135m", folder))
    command = [sys.executable, "-m", "anchorscope.cli", "demo", "--model", model, "--data", str(data), "--runs"]
    found: dict[str, Any] = {}
    for name, env in (("as it is", {}), ("without bfloat16 instructions", SLOW)):
        start = time.perf_counter()
        place = work / name.replace(" ", "-")
        done = subprocess.run([*command, str(place)], env={**os.environ, **env}, capture_output=True, text=True)
        manifest = next(place.glob("*/*/four-sets/manifest.json"))
        dtype = json.loads(manifest.read_text())["tables"]["answers"]["facts"]["dtype"]
        found[name] = {"seconds": round(time.perf_counter() - start), "dtype": dtype, "exit": done.returncode}
        found[name]["transcript"] = (done.stderr + done.stdout).splitlines()
    found["terminal"] = on_terminal([*command, str(work / "terminal")])
    return found


def on_terminal(command: list[str]) -> list[str]:
    """What a terminal shows of a command, of every bar how it stood last."""
    seen: list[bytes] = []

    def read(handle: int) -> bytes:
        seen.append(os.read(handle, 1 << 16))
        return seen[-1]

    os.environ["COLUMNS"] = "120"
    with Path(os.devnull).open("wb") as nothing:  # the terminal's own output is not wanted here
        kept = os.dup(1)
        os.dup2(nothing.fileno(), 1)
        try:
            pty.spawn(command, read)
        finally:
            os.dup2(kept, 1)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(seen).decode(errors="replace"))
    last: dict[str, str] = {}
    for line in re.split(r"[\r\n]+", text):
        words = line.strip(" ⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
        last[words.split("  ")[0].split("━")[0]] = words
    return [line for line in last.values() if line]


def main() -> None:
    """Run the steps and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", help="which steps; default all")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/qa")
    parser.add_argument("--models", type=Path, default=Path.home() / ".cache" / "anchorscope-checks")
    parser.add_argument("--before", type=Path, help="an older checkout to measure commands and mistakes against")
    options = parser.parse_args()
    data, folder = options.data.resolve(), options.models
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        steps: dict[str, Callable[[Path], dict[str, Any]]] = {
            "rooms": lambda work: rooms(),
            "same": lambda work: same(data, folder, work),
            "page": lambda work: page(data, folder, work),
            "families": families,
            "commands": lambda work: commands(options.before, work),
            "mistakes": lambda work: mistakes(options.before, data, folder, work),
            "demo": lambda work: demo(data, folder, work),
        }
        figures = {}
        for name in options.steps or steps:
            start, work = time.perf_counter(), Path(temporary) / name
            work.mkdir()
            figures[name] = {**steps[name](work), "took_seconds": round(time.perf_counter() - start)}
            print(f"{name}: {json.dumps(figures[name], ensure_ascii=False)}", flush=True)
    print(json.dumps(figures, ensure_ascii=False))


if __name__ == "__main__":
    main()
