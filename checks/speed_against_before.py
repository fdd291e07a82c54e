"""Is this checkout faster than an older one?

    python checks/speed_against_before.py --before CHECKOUT --data DIR --models DIR

Steps: `probes` times the probes and pathways of one made-up cell; `share` measures, in a whole run of SmolLM2-135M on
TriviaQA, how much of the CPU time is spent outside the model's forward passes. Both checkouts run in turns, each in a
process of its own. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from helpers.runs import carried_out, real_study, with_old_names, write
from helpers.steps import ROOT, Check, Figures, Options, last_json

check = Check(__doc__)

# CPU seconds of one thread: seconds by the clock would include the other work of the machine
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
report = {"seconds": whole, "passes": passes[0], "outside": 1 - passes[0] / whole, "by the clock": run.times}
Path(sys.argv[3]).write_text(json.dumps(report))
"""


@check.step("before")
def probes(options: Options, work: Path) -> Figures:
    """Seconds by the clock and of CPU time, medians over turns, and their ratios."""
    script = Path(__file__).resolve().parent / "helpers" / "probe_cell.py"
    shape = [str(each) for each in options.cell]
    turns: dict[str, list[dict[str, list[float]]]] = {"before": [], "now": []}
    for _ in range(options.turns):
        for name, checkout in (("before", options.before), ("now", ROOT)):
            paths = {**os.environ, "PYTHONPATH": str(checkout / "src")}
            words = [sys.executable, str(script), *shape]
            done = subprocess.run(words, env=paths, check=True, capture_output=True, text=True)
            turns[name].append(last_json(done.stdout))
            print(name, turns[name][-1], flush=True)

    def seconds(name: str, parts: set[str], kind: int) -> float:
        return median(sum(turn[part][kind] for part in parts) for turn in turns[name])

    every = set(turns["now"][0])
    figures: Figures = {"cell": options.cell, "turns": options.turns}
    for kind, unit in enumerate(("wall", "cpu")):
        for title, parts in (("probes", every - {"pathways"}), ("pathways", {"pathways"}), ("both", every)):
            before, now = seconds("before", parts, kind), seconds("now", parts, kind)
            figures[f"{title}_{unit}"] = {
                "before": round(before, 1), "now": round(now, 1), "ratio": round(before / now, 2)
            }  # fmt: skip
    return figures


@check.step("before", "data", "models")
def share(options: Options, work: Path) -> Figures:
    """The share of a run's CPU time that is spent outside the model's forward passes, before and now."""
    names, traces = {"SmolLM2-135M": "smollm2-135m"}, {"attention_samples": 0}
    sets = ("triviaqa",)
    study = real_study(work, options.questions, names, options.data, options.models, sets, probes={}, traces=traces)
    figures: Figures = {}
    for name, checkout in (("before", options.before), ("now", ROOT)):
        path = write(work, with_old_names(study, checkout), name)
        report = carried_out(path, work / f"share-{name}", SHARE, checkout)
        figures[name] = {key: value if key == "by the clock" else round(value, 3) for key, value in report.items()}
        print(name, figures[name], flush=True)
    return figures


check.option("--turns", "Time each checkout this many times", 3)
check.option("--cell", "Draw a cell of this many samples, features and layers", [1000, 576, 8], nargs=3, metavar="N")
check.option("--questions", "Trace this many questions in `share`", 120)

if __name__ == "__main__":
    check()
