"""How near the floor: `make bench`. JSON and a plot go to benchmarks/results; the last line is one JSON object.

Steps (all by default, or name some): main, batch, length, peers, memory. All contenders of a comparison run at once,
batch by batch in turns, `--repeats` times; what is reported is the median of the ratios. `peers` needs a Python with
TransformerLens 4.3 and nnsight 0.8, given as --peers-python; without it the step is left out and says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # who waits for its turn leaves the cores alone
os.environ.setdefault("LRU_CACHE_CAPACITY", "1024")  # torch's own number of compiled kernels: contenders that run at
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "1024")  # once do not take each other's

import torch
from cases import FIVE, MODELS, ROOT, SETS, TWO, Case, folder_of, make_cases, model_of, token_layers
from contenders import Contender, Ours, bare
from peer_process import Server

from anchorscope.models.load import Model
from anchorscope.store.rundir import versions
from anchorscope.study.terms import Into

RESULTS = Path(__file__).with_name("results")
BATCHES = (1, 4, 16, 64)
LENGTHS = (50, 100, 200, 400, 800)
PEER_BATCH = 32  # of the peers' tuned form
DOCUMENTED = 2  # questions for the peers' documented form: a pass per layer and question takes its time


@dataclass(frozen=True)
class Setting:
    """What one comparison with the bare engine is made of."""

    shots: int
    into: Into
    dtype: str
    sets: tuple[str, ...] = SETS
    mapped: bool = False
    share: int = 1
    """One of so many questions."""

    def __str__(self) -> str:
        which = "" if self.sets == SETS else f"/{'+'.join(self.sets)} alone"
        return f"{self.shots}-shot/{self.into}/{self.dtype}{which}"


# the prompt of the study in the dtype it runs in, then one thing changed at a time
SETTINGS = (
    Setting(4, "after", "bfloat16", mapped=True),
    Setting(4, "answer", "bfloat16", mapped=True),
    Setting(4, "after", "bfloat16", ("nq",), share=2),
    Setting(0, "after", "bfloat16", share=2),
    Setting(0, "answer", "bfloat16", share=2),
    Setting(4, "after", "float32", share=4),
)
COMPARED: tuple[tuple[str, Into], ...] = (("sweep", "after"), ("map", "answer"))  # with peers


def turns(contenders: Mapping[str, Contender], repeats: int) -> dict[str, list[float]]:
    """Seconds of each contender in each turn, after one turn that is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(repeats + 1):
        for name, seconds in turn(contenders).items():
            if number:
                taken[name].append(seconds)
    return taken


def turn(contenders: Mapping[str, Contender]) -> dict[str, float]:
    """Seconds of each, all at once: who is least far makes the next batch."""
    running = {name: run() for name, run in contenders.items()}
    done, taken = dict.fromkeys(running, 0.0), dict.fromkeys(running, 0.0)
    while running:
        name = min(running, key=lambda each: done[each])
        start = time.perf_counter()
        step = next(running[name], None)
        taken[name] += time.perf_counter() - start
        if step is None:
            del running[name]
        else:
            done[name] = step[0]
    return taken


def ratio(taken: Mapping[str, list[float]], first: str, second: str, scale: float = 1.0) -> dict[str, float]:
    """The first's time over the second's, turn by turn: median, lowest, highest."""
    ratios = [scale * a / b for a, b in zip(taken[first], taken[second], strict=True)]
    return {"median": round(median(ratios), 3), "low": round(min(ratios), 3), "high": round(max(ratios), 3)}


class Bench:
    """Steps over the same real questions."""

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        self.options, self.work = options, work
        self.folder: Path = options.models

    def cases(self, name: str, shots: int, sets: tuple[str, ...] = SETS) -> list[Case]:
        """The questions, answered in bfloat16 whatever is timed."""
        return make_cases(name, shots, self.options.questions, sets, self.options.data, self.folder, self.work)

    def main(self) -> dict[str, Any]:
        """The sweep, all five conditions and the map against the bare engine and the floor."""
        found: dict[str, Any] = {}
        for name in self.options.only:
            for setting in SETTINGS:
                model = model_of(name, setting.dtype, self.folder)
                cases = self.cases(name, setting.shots, setting.sets)[:: setting.share]
                key = f"{MODELS[name]}/{setting}"
                found[key] = self.against_bare(model, cases, setting, best_batch(model, cases))
                say(key, found[key])
        return found

    def against_bare(self, model: Model, cases: list[Case], setting: Setting, best: int) -> dict[str, Any]:
        """One setting."""
        into = setting.into
        ours, some = Ours(model, cases, into), cases[:: max(1, len(cases) // self.options.mapped)]
        contenders: dict[str, Contender] = {
            "bare": partial(bare, model, cases, best),
            "sweep": ours.sweep,
            "five": partial(ours.sweep, None, FIVE),
        }
        if setting.mapped:
            contenders["map"] = Ours(model, some, into).map
        taken = turns(contenders, self.options.repeats)
        layers, shared = ours.tracer().layers, cases[0].shared
        whole = layers * sum(len(case.ids) for case in cases)
        floors = {
            "sweep": token_layers([case.row(TWO, into, layers) for case in cases], shared, layers),
            "five": token_layers([case.row(FIVE, into, layers) for case in cases], shared, layers),
        }
        if setting.mapped:
            floors["map"] = token_layers([case.map_row(into, layers) for case in some], shared, layers)
        per_case = len(cases) / len(some)
        return {
            "questions": len(cases), "tokens": round(sum(len(c.ids) for c in cases) / len(cases), 1),
            "shared": shared, "bare_batch": best, **({"mapped": len(some)} if setting.mapped else {}),
            "sweep/bare": ratio(taken, "sweep", "bare"),
            "floor/bare": {what: round(floor / whole * (per_case if what == "map" else 1), 3)
                           for what, floor in floors.items()},
            **{f"{what}/floor": ratio(taken, what, "bare", whole / floor) for what, floor in floors.items()},
            **({"map/bare": ratio(taken, "map", "bare", per_case)} if setting.mapped else {}),
            "seconds": {what: [round(s, 4) for s in each] for what, each in taken.items()},
        }  # fmt: skip

    def batch(self) -> dict[str, Any]:
        """The sweep at batch sizes from 1 to 64, against the bare engine at its best."""
        found: dict[str, Any] = {}
        for name in self.options.only:
            model, cases = model_of(name, "bfloat16", self.folder), self.cases(name, 4)[::8]
            ours = Ours(model, cases, "after")
            contenders: dict[str, Contender] = {"bare": partial(bare, model, cases, best_batch(model, cases))}
            for size in BATCHES:
                contenders[f"sweep {size}"] = partial(ours.sweep, size)
                contenders[f"bare {size}"] = partial(bare, model, cases, size)
            taken = turns(contenders, self.options.repeats)
            found[MODELS[name]] = {what: ratio(taken, what, "bare") for what in taken if what != "bare"}
            say(f"batch {MODELS[name]}", found[MODELS[name]])
        return found

    def length(self) -> dict[str, Any]:
        """Prompts of 50 to 800 tokens: filled up by text that all share, and by text that each has for itself."""
        found: dict[str, Any] = {}
        for name in self.options.only:
            model = model_of(name, "bfloat16", self.folder)
            cases = self.cases(name, 0)[:: max(1, self.options.questions // 16)]
            text = [token for case in self.cases(name, 0) for token in case.ids[case.shared :]]
            for shared in (True, False):
                for tokens in LENGTHS:
                    longer = [
                        case.longer(text[i * 97 :][: max(0, tokens - len(case.ids))] if not shared
                                    else text[: max(0, tokens - median_length(cases))], shared)
                        for i, case in enumerate(cases)
                    ]  # fmt: skip
                    key = f"{MODELS[name]}/{'shared' if shared else 'own'}/{tokens}"
                    found[key] = sweep_and_floor(model, longer, self.options.repeats)
                    say(key, found[key])
        return found

    def peers(self) -> dict[str, Any]:
        """The same by TransformerLens and nnsight, checked to give the same numbers."""
        if self.options.peers_python is None:
            return {"left out": "no --peers-python was given"}
        found: dict[str, Any] = {}
        for name in self.options.only:
            same = self.same_numbers(name)
            cases, model = self.cases(name, 4), model_of(name, "bfloat16", self.folder)
            some, few = cases[:: max(1, len(cases) // 32)], cases[:: max(1, len(cases) // DOCUMENTED)]
            for tool in ("transformer_lens", "nnsight"):
                with Server(
                    self.options.peers_python, self.work, tool, folder_of(name, self.folder), "bfloat16"
                ) as server:
                    found[f"{MODELS[name]}/{tool}"] = {
                        "relative difference, float32": same[tool],
                        **self.against_peer(server, model, some, few),
                    }
                    say(f"{MODELS[name]}/{tool}", found[f"{MODELS[name]}/{tool}"])
        return found

    def against_peer(self, server: Server, model: Model, some: list[Case], few: list[Case]) -> dict[str, Any]:
        """How many times as long a question takes, in both forms; 4-shot, bfloat16."""
        found: dict[str, Any] = {}
        repeats = self.options.repeats
        for what, into in COMPARED:
            ours = Ours(model, some, into)
            run: Contender = ours.sweep if what == "sweep" else ours.map
            theirs = {"documented": few, "tuned": some if what == "sweep" else some[::4]}
            files = {form: server.write(cases, into) for form, cases in theirs.items()}
            taken: dict[str, list[float]] = {"ours": [], "documented": [], "tuned": []}
            for number in range(repeats + 1):
                start = time.perf_counter()
                list(run())
                times = {"ours": (time.perf_counter() - start) / len(some)}
                for form, cases in theirs.items():
                    times[form] = server.ask(what, form, files[form], PEER_BATCH) / len(cases)
                for who, seconds in times.items() if number else ():
                    taken[who].append(seconds)
            for form in ("documented", "tuned"):
                found[f"{what} ({into}), {form} / ours"] = ratio(taken, form, "ours")
            found[f"{what}, seconds per question"] = {who: round(median(each), 4) for who, each in taken.items()}
        return found

    def same_numbers(self, name: str) -> dict[str, float]:
        """The largest difference from ours in float32, relative to the layer's largest activation: both forms."""
        from safetensors.torch import load_file

        model, cases = model_of(name, "float32", self.folder), self.cases(name, 4)[::128][:2]
        found = {}
        wanted = {}
        for what, into in COMPARED:
            for i, case in enumerate(cases):
                ours = Ours(model, [case], into)
                _, states = next(ours.sweep() if what == "sweep" else ours.map())
                wanted[what, i] = {s: v[:, 1:].transpose(0, 1) if what == "map" else v[:, 1] for s, v in states.items()}
        for tool in ("transformer_lens", "nnsight"):
            worst = 0.0
            with Server(self.options.peers_python, self.work, tool, folder_of(name, self.folder), "float32") as server:
                for what, into in COMPARED:
                    for form in ("documented", "tuned"):
                        out = self.work / "peer.safetensors"
                        server.ask(what, form, server.write(cases, into), 2, out)
                        theirs = load_file(out)
                        for i in range(len(cases)):
                            for site, expected in wanted[what, i].items():
                                got = theirs[f"{i}.{site}"]
                                scale = expected.abs().amax(dim=-1, keepdim=True)
                                worst = max(worst, float(((got - expected).abs() / scale).max()))
            found[tool] = worst
        return found

    def memory(self) -> dict[str, Any]:
        """Peak memory of tracing 500 and 5,000 samples, each in a process of its own."""
        found: dict[str, Any] = {}
        for samples in (500, 5000):
            command = [sys.executable, str(Path(__file__).with_name("memory.py")), str(samples)]
            options = ["--data", str(self.options.data), "--models", str(self.folder), "--work", str(self.work)]
            environment = {k: v for k, v in os.environ.items() if not k.endswith("CACHE_CAPACITY")}  # ours
            subprocess.run([*command, *options, "--answers"], check=True, stdout=sys.stderr, env=environment)
            done = subprocess.run([*command, *options], check=True, capture_output=True, text=True, env=environment)
            found[str(samples)] = json.loads(done.stdout.splitlines()[-1])
            say(f"memory {samples}", found[str(samples)])
        found["growth"] = round(found["5000"]["peak_mb"] / found["500"]["peak_mb"] - 1, 4)
        return found


def best_batch(model: Model, cases: list[Case], sizes: tuple[int, ...] = (16, 32, 64)) -> int:
    """The batch size at which the bare engine is fastest."""
    some = cases[:: max(1, len(cases) // 64)]
    times = {}
    for size in sizes:
        times[size] = min(turns({"bare": partial(bare, model, some, size)}, 2)["bare"])
    return min(times, key=lambda size: times[size])


def sweep_and_floor(model: Model, cases: list[Case], repeats: int) -> dict[str, Any]:
    """The sweep and its floor, both over the bare engine at its best."""
    ours, best = Ours(model, cases, "after"), best_batch(model, cases, (4, 16))
    taken = turns({"bare": partial(bare, model, cases, best), "sweep": ours.sweep}, repeats)
    layers = ours.tracer().layers
    rows = [case.row(TWO, "after", layers) for case in cases]
    whole = layers * sum(len(case.ids) for case in cases)
    floor = token_layers(rows, cases[0].shared, layers)
    return {
        "tokens": sum(len(case.ids) for case in cases) / len(cases),
        "sweep/bare": ratio(taken, "sweep", "bare"),
        "floor/bare": round(floor / whole, 3),
        "sweep/floor": ratio(taken, "sweep", "bare", whole / floor),
    }


def median_length(cases: list[Case]) -> int:
    """Of the whole sequences."""
    return int(median(len(case.ids) for case in cases))


def say(what: str, found: Mapping[str, Any]) -> None:
    """Progress, for a person."""
    shown = {k: v["median"] if isinstance(v, dict) and "median" in v else v for k, v in found.items() if k != "seconds"}
    print(f"{what}: {json.dumps(shown)}", flush=True)


def ratios(found: Mapping[str, Any]) -> dict[str, Any]:
    """What the issue asks for, read off the results of all steps."""
    asked: dict[str, Any] = {}
    for key, each in found.get("main", {}).items():
        names = ("sweep/bare", "sweep/floor", "five/floor", "map/floor")
        asked[key] = {name: each[name]["median"] for name in names if name in each}
        asked[key]["sweep's floor/bare"] = each["floor/bare"]["sweep"]
    for key, each in found.get("peers", {}).items():
        if isinstance(each, dict):
            asked[key] = {name: value["median"] for name, value in each.items() if name.endswith("/ ours")}
    if "memory" in found:
        asked["memory growth, 500 to 5,000 samples"] = found["memory"]["growth"]
    return asked


def main() -> None:
    """Run the steps, write their results, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", help="which steps; default all")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/qa")
    parser.add_argument("--models", type=Path, default=Path.home() / ".cache" / "anchorscope-checks")
    parser.add_argument("--only", nargs="*", default=list(MODELS), choices=list(MODELS), help="which models")
    parser.add_argument("--questions", type=int, default=256)
    parser.add_argument("--mapped", type=int, default=64, help="of these questions, how many a map is made of")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--peers-python", help="a Python with TransformerLens and nnsight")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--work", type=Path, help="where answers are kept for another time; default: nowhere")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        bench = Bench(options, work)
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            "main": bench.main, "batch": bench.batch, "length": bench.length, "peers": bench.peers,
            "memory": bench.memory,
        }  # fmt: skip
        for name in options.steps or steps:
            start = time.perf_counter()
            found = {**steps[name](), "about": about(options), "took_seconds": round(time.perf_counter() - start)}
            (options.results / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    from plot import plot

    whole = {path.stem: json.loads(path.read_text()) for path in sorted(options.results.glob("*.json"))}
    plot(whole, options.results)
    for each in whole.values():
        each.pop("about", None)
        each.pop("took_seconds", None)
    print(json.dumps(ratios(whole)))


def about(options: argparse.Namespace) -> dict[str, Any]:
    """The machine and the versions."""
    threads = {"threads": torch.get_num_threads(), "machine": platform.processor() or platform.machine()}
    return {"versions": versions(), **threads, "repeats": options.repeats}


if __name__ == "__main__":
    main()
