"""Studies of the engine's checks, carried out each in a process of its own, and what is compared of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "checks")]
DATA = ROOT.parent / "shared" / "data" / "qa"
CACHE = Path.home() / ".cache" / "anchorscope-checks"
SETS = ("popqa", "triviaqa", "hotpotqa", "nq")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "RAY_worker_niceness": "0", "HF_HUB_OFFLINE": "1"}
LIGHT_PROBES = {"repeats": 1, "folds": 3, "strengths": [0.001, 0.01], "resamples": 100}

RUNNER = """
import json, sys, time
import torch
torch.set_num_threads(1)
from pathlib import Path
from anchorscope import load_study
from anchorscope.run.pipeline import Pipeline
from anchorscope.store import Store
asked, root, out = load_study(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
start = time.perf_counter()
with Store.writing(root, asked) as store:
    run = Pipeline(store)
    run()
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
out.write_text(json.dumps({"seconds": time.perf_counter() - start, "times": run.times, "peak_mb": int(peak) / 1024}))
"""

# by CPU seconds of its one thread: those of the clock are the host's and its other guests' too
SHARE = """
import json, sys, time
import torch
torch.set_num_threads(1)
from pathlib import Path
import anchorscope.models.load as load
passes, depth = [0.0], [0]

def timed(forward):
    def wrapper(*args, **kwargs):
        depth[0] += 1
        start = time.process_time()
        try:
            return forward(*args, **kwargs)
        finally:
            depth[0] -= 1
            if depth[0] == 0:
                passes[0] += time.process_time() - start
    return wrapper

before = load._load_network
def loaded(*args, **kwargs):
    network = before(*args, **kwargs)
    for module in {id(m): m for m in (network, network.get_decoder())}.values():
        module.forward = timed(module.forward)
    return network
load._load_network = loaded

from anchorscope import load_study
from anchorscope.run.pipeline import Pipeline
from anchorscope.store import Store
start = time.process_time()
with Store.writing(Path(sys.argv[2]), load_study(sys.argv[1])) as store:
    run = Pipeline(store)
    run()
whole = time.process_time() - start
found = {"seconds": whole, "passes": passes[0], "outside": 1 - passes[0] / whole, "by the clock": run.times}
Path(sys.argv[3]).write_text(json.dumps(found))
"""


# --- studies


def write(folder: Path, study: dict[str, Any], name: str, engine: dict[str, Any] | None = None) -> Path:
    """A study as a file, with an engine."""
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({**study, **({"engine": engine} if engine else {})}))
    return path


def real_study(folder: Path, each: int, names: dict[str, str], sets: tuple[str, ...], **fields: Any) -> dict[str, Any]:
    """Real models and questions; the answers are given: the first accepted one, or that of another question."""
    from weights import unpacked

    given = []
    for name in sets:
        lines = [json.loads(line) for line in (DATA / f"{name}.jsonl").open(encoding="utf-8")][: 2 * each]
        for i, row in enumerate(lines):
            right = i % 3 == 0
            other = lines[(i + 7) % len(lines)]
            answer = (row if right else other)["answers"][0]
            given.append({"question": row["question"], "answer": answer, "label": right})
    (folder / "given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    for name in sets:
        head = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[: 2 * each]
        (folder / f"{name}.jsonl").write_text("\n".join(head) + "\n")
    return {
        "name": "s",
        "models": [{"id": str(unpacked(key, CACHE)), "name": name, "dtype": "float32"} for name, key in names.items()],
        "datasets": [{"set": name, "path": str(folder / f"{name}.jsonl"), "sample": each} for name in sets],
        "answers": {"source": "file", "file": str(folder / "given.jsonl")},
        "probes": LIGHT_PROBES,
        **fields,
    }


def tiny_study(folder: Path, sets: dict[str, tuple[int, int]], models: dict[str, str], **fields: Any) -> dict[str, Any]:
    """Tiny models and made-up questions."""
    from tiny_study import write_study  # type: ignore[import-not-found]

    made: dict[str, Any] = write_study(folder, models, sets, probes=LIGHT_PROBES, **fields).record()
    made["answers"]["file"] = str(folder / made["answers"]["file"])
    return made


# --- running


def environment(checkout: Path = ROOT) -> dict[str, str]:
    """One thread, and the package of a checkout."""
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": str(checkout / "src")}


def started(study: Path, root: Path, code: str = RUNNER, checkout: Path = ROOT) -> tuple[subprocess.Popen[str], Path]:
    """A run in a process of its own, and where it will say how it went."""
    out = root.with_suffix(".json")
    out.unlink(missing_ok=True)
    command = [sys.executable, "-c", code, str(study), str(root), str(out)]
    return subprocess.Popen(command, env=environment(checkout), text=True, stderr=subprocess.PIPE), out


def carried_out(study: Path, root: Path, code: str = RUNNER, checkout: Path = ROOT) -> dict[str, Any]:
    """How a run went."""
    shutil.rmtree(root, ignore_errors=True)
    process, out = started(study, root, code, checkout)
    _, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(errors[-3000:])
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def content(root: Path) -> dict[str, bytes]:
    """Every file of a run but its lock."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def different(one: Path, other: Path) -> list[str]:
    """Files that are not in both, or not the same."""
    a, b = content(one), content(other)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
