"""Does inspect_ai's scorer give the verdicts of the server and the AUROC of its own log, and is nothing left unsaid?

    python checks/inspect_scorer.py --models DIR --data DATA --inspect-python PYTHON

PYTHON can import inspect_ai, openai and anchorscope. A small endpoint serves SmolLM2, and `anchorscope serve` stands
before it. Steps: `served` runs `inspect eval` on questions of TriviaQA, compares what its log says with the detector in
this process, and scores the log again with `inspect score`, by the detector instead of the server; `not_kept` lets
inspect_ai keep no responses; `edited` changes the answers before they are scored; `chats` asks the chat API, streamed
and not, which this detector cannot judge.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from anchorscope import Detector, open_model
from helpers.small_endpoint import SmallEndpoint
from helpers.steps import ROOT, Check, Figures, Options
from helpers.vllm_server import VllmServer
from weights import unpacked

check = Check(__doc__)
check.option("--questions", "Ask this many questions", 100)
check.option("--set", "Ask the questions of this set", "triviaqa")

NEEDS = ("models", "data", "inspect_python")
MODEL = "smollm2-135m"
DETECTOR = ROOT / "results" / "small-models" / "detectors" / "smollm2-135m-confidence"
TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, prompt_template, solver

from anchorscope import Detector
from anchorscope.serve.scorer import verdicts


@solver
def changed():
    async def solve(state, generate):
        state.output.completion = "Paris"
        return state

    return solve


@task
def questions(file: str, detector: str, change: bool = False):
    request = Detector.load(detector).request("{prompt}")
    return Task(
        dataset=json_dataset(file, FieldSpec(input="question", target="answers", metadata=["subject"])),
        solver=[prompt_template(request["prompt"]), generate(), *([changed()] if change else [])],
        scorer=[includes(), verdicts()],
        config=GenerateConfig(temperature=0, max_tokens=request["max_tokens"], stop_seqs=request["stop"]),
    )
"""


class Scored(NamedTuple):
    """What inspect_ai's log says of a sample."""

    question: str
    answer: str
    grade: str
    score: dict[str, Any]

    @property
    def p_wrong(self) -> float:
        return float(self.score["value"]["p_wrong"])

    @property
    def verdict(self) -> dict[str, Any]:
        verdict: dict[str, Any] = self.score["metadata"]["verdict"]
        return verdict


@contextmanager
def proxy(options: Options, work: Path) -> Iterator[str]:
    """The proxy before the small endpoint; where it listens."""
    folder = unpacked(MODEL, options.models)
    with (
        SmallEndpoint(open_model(str(folder), dtype="float32")) as endpoint,
        VllmServer(sys.executable, folder, work / "proxy.log", [DETECTOR], endpoint=endpoint.url) as server,
    ):
        yield server.url


def inspect(options: Options, work: Path, words: Sequence[str], url: str = "") -> None:
    """Run inspect_ai's command."""
    known = {"SMALL_BASE_URL": f"{url}/v1", "SMALL_API_KEY": "none", "INSPECT_DISPLAY": "plain"}
    command = [options.inspect_python, "-m", "inspect_ai", *words]
    done = subprocess.run(command, cwd=work, env={**os.environ, **known}, capture_output=True, text=True)
    print(done.stdout[-1500:], done.stderr[-3000:] if done.returncode else "", flush=True)
    if done.returncode:
        raise SystemExit(f"inspect {words[0]} ended with {done.returncode}")


def evaluated(options: Options, work: Path, more: Sequence[str] = (), provider: str = "openai-api-completions") -> Path:
    """The log of `inspect eval` before the proxy."""
    (work / "task.py").write_text(TASK, encoding="utf-8")
    with (options.data / f"{options.set}.jsonl").open(encoding="utf-8") as lines:
        rows = [{"subject": None, **json.loads(line)} for line, _ in zip(lines, range(options.questions), strict=False)]
    (work / "questions.json").write_text(json.dumps(rows), encoding="utf-8")
    model = f"{provider}/small/{unpacked(MODEL, options.models).name}"
    with proxy(options, work) as url:
        arguments = ["-T", "file=questions.json", "-T", f"detector={DETECTOR}", "--model", model, *more]
        inspect(options, work, ["eval", "task.py", *arguments, "--log-dir", "logs"], url)
    (log,) = (work / "logs").glob("*.eval")
    return log


def read(options: Options, log: Path, name: str = "verdicts") -> tuple[list[Scored], dict[str, float]]:
    """The samples of a log, and the scorer's metrics."""
    command = [options.inspect_python, "-m", "inspect_ai", "log", "dump", "--resolve-attachments", "full", str(log)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"inspect log dump ended with {done.returncode}: {done.stderr[-3000:]}")
    whole = json.loads(done.stdout)
    samples = [
        Scored(sample["input"], sample["output"]["choices"][0]["message"]["content"],
               sample["scores"]["includes"]["value"], sample["scores"][name])
        for sample in whole["samples"]
    ]  # fmt: skip
    (own,) = (score for score in whole["results"]["scores"] if score["name"] == name)
    return samples, {key: float(metric["value"]) for key, metric in own["metrics"].items()}


def by_hand(samples: Sequence[Scored]) -> float:
    """The share of pairs of a wrong and a right answer in which the wrong one has the higher p_wrong."""
    judged = [sample for sample in samples if not math.isnan(sample.p_wrong)]
    wrong, right = ([s.p_wrong for s in judged if s.grade == grade] for grade in "IC")
    pairs = [1.0 if one > other else 0.5 if one == other else 0.0 for one, other in product(wrong, right)]
    return sum(pairs) / len(pairs)


def counted(samples: Sequence[Scored]) -> Figures:
    """How many samples have each decision, and each code."""
    verdicts = [sample.verdict for sample in samples]
    return {
        "samples": len(samples),
        "graded": Counter(sample.grade for sample in samples),
        "decisions": Counter(verdict["decision"] for verdict in verdicts),
        "codes": Counter(verdict["code"] for verdict in verdicts if verdict["code"]),
        "reasons": sorted({verdict["reason"] for verdict in verdicts if verdict["reason"]}),
    }


@check.step(*NEEDS)
def served(options: Options, work: Path) -> Figures:
    """The server's verdicts in inspect_ai's log, and those of the detector after `inspect score`."""
    log = evaluated(options, work)
    samples, metrics = read(options, log)
    folder = unpacked(MODEL, options.models)
    model = open_model(folder, dtype="float32")
    answered = Detector.load(DETECTOR).answer(model, [sample.question for sample in samples])
    library = ["-S", f"detector={DETECTOR}", "-S", f"model={folder}"]
    scored = ["--scorer", "anchorscope/verdicts", "--action", "append", *library]
    inspect(options, work, ["score", str(log), *scored, "--output-file", "again.eval"])
    again, later = read(options, work / "again.eval", "verdicts1")
    return {
        **counted(samples),
        "metrics": metrics,
        "auroc_by_hand": by_hand(samples),
        "auroc_apart": abs(metrics["auroc"] - by_hand(samples)),
        "same_answer_as_library": sum(s.answer.strip() == a.answer for s, a in zip(samples, answered, strict=True)),
        "beside_library": beside([s.verdict for s in samples], [a.verdict.record() for a in answered]),
        "scored_again": {**counted(again), "metrics": later, "auroc_apart": abs(later["auroc"] - by_hand(again))},
        "same_interval": all(later[name] == metrics[name] for name in ("auroc_low", "auroc_high")),
        "served_beside_scored_again": beside([s.verdict for s in samples], [s.verdict for s in again]),
    }


@check.step(*NEEDS)
def not_kept(options: Options, work: Path) -> Figures:
    """inspect_ai keeps no responses of the server."""
    samples, metrics = read(options, evaluated(options, work, ["--limit", "5", "--no-log-model-api"]))
    return {**counted(samples), "metrics": metrics}


@check.step(*NEEDS)
def edited(options: Options, work: Path) -> Figures:
    """A solver changes the answers after the model has given them."""
    asked = ["--limit", "5", "-T", "change=true"]
    samples, metrics = read(options, evaluated(options, work, asked))
    return {**counted(samples), "metrics": metrics}


@check.step(*NEEDS)
def chats(options: Options, work: Path) -> Figures:
    """The chat API, whole and streamed. The detector's prompt is none of a chat."""
    figures = {}
    for name, more in (("whole", []), ("streamed", ["-M", "stream=true"])):
        (work / name).mkdir()
        log = evaluated(options, work / name, ["--limit", "5", *more], "openai-api")
        samples, metrics = read(options, log)
        figures[name] = {**counted(samples), "metrics": metrics}
    return figures


def beside(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> Figures:
    """How many decisions are the same, and how far p_wrong is apart at most."""
    both = [(one["p_wrong"], other["p_wrong"]) for one, other in zip(ours, theirs, strict=True)]
    return {
        "same_decision": sum(one["decision"] == other["decision"] for one, other in zip(ours, theirs, strict=True)),
        "of": len(ours),
        "p_wrong_apart": max(abs(one - other) for one, other in both if one is not None and other is not None),
    }


if __name__ == "__main__":
    check()
