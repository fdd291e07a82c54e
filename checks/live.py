"""Verdicts inside a vLLM server: do they agree with the detector, what do they cost, and does anything pass unseen?

    python checks/live.py --data DIR --models DIR --vllm-python PYTHON [--detector my-detector --confidence other]

`--detector` is one fitted on SmolLM2-135M in float32, `--confidence` one of log-probabilities alone.
Steps: `agreement` asks the same questions of the server and of `Detector.answer`, under chunked prefill, preemption,
speculative decoding and in bfloat16; `cost` loads a server with and without verdicts in turns; `mixed` sends requests
that try to get around the verdict, and requests of every kind, some of them aborted; `refused` starts servers whose
model is not the detector's; `failures` kills the engine and lets clients vanish; `client` uses the official client;
`proxy` puts the proxy before a plain server; `chat` serves a detector of chats, `adapter` one of a LoRA adapter, and
`reload` changes a detector's files while it is served; `latency` times the proxy beside its endpoint, and `profile`
says where the server's processes spend their time (it needs py-spy).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from anchorscope.detectors.session import Detector, JudgedAnswer
from anchorscope.models.opened import open_model
from anchorscope.models.prompts import Prompter
from anchorscope.questions.definition import PLAIN
from anchorscope.questions.file_rows import FileRows
from anchorscope.questions.row import to_question
from anchorscope.serve.config import ServeConfig
from anchorscope.serve.judge import LiveJudge
from anchorscope.serve.lora import named
from anchorscope.serve.plugin import MIDDLEWARE
from anchorscope.serve.wire import private_socket
from helpers.changed_models import CHANGES, change_model
from helpers.profiled import Profile
from helpers.server_cost import in_turns
from helpers.server_requests import any_request, completion, outcomes
from helpers.server_requests import spellings as try_spellings
from helpers.steps import ROOT, Check, Figures, Options
from helpers.vllm_server import ONE_PROCESS, RefusedError, Reply, VllmServer, free_port, load
from weights import unpacked

check = Check(__doc__)
PUBLISHED = ROOT / "results" / "small-models" / "detectors" / "smollm2-135m"
TENTHS = 10
EAGER = ("--enforce-eager",)
SETTINGS: dict[str, tuple[str, ...]] = {
    "as it is": EAGER,
    "compiled": (),
    "compiled, from a warm cache": (),
    "chunked prefill of 48 tokens": (*EAGER, "--max-num-batched-tokens", "48", "--max-num-seqs", "16"),
    "preempted": (  # 26 blocks hold 832 tokens, and vLLM asks for room for one text of the greatest length
        *EAGER,
        *("--block-size", "32", "--num-gpu-blocks-override", "26", "--max-model-len", "512"),
        "--no-enable-prefix-caching",
    ),
    "n-gram speculation": (
        *EAGER,
        "--speculative-config",
        '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 1}',
    ),
    "bfloat16": (*EAGER, "--dtype", "bfloat16"),
    "tensor parallel": (*EAGER, "--tensor-parallel-size", "2"),  # SmolLM2 has 9 heads, which do not divide by 2
}


ALL_QUESTIONS = {"as it is", "compiled"}
"""Settings in which all questions are asked, and not a fifth of them."""


def model_of(options: Options) -> Path:
    """The served model as a folder."""
    return unpacked(options.model, options.models)


def questions_of(options: Options, count: int) -> list[str]:
    """Questions of TriviaQA and PopQA, from all over the sets, the same at every call."""
    found: list[str] = []
    for name in ("triviaqa", "popqa"):
        rows = [
            to_question(row, PLAIN, [], str(number)).question
            for number, row in FileRows(options.data / f"{name}.jsonl")
        ]
        found += rows[:: max(1, len(rows) // (count // 2 + 1))][: count // 2]
    return found


def prompter_of(detector: Detector, options: Options) -> Prompter:
    """Puts questions as the detector's training questions were put."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_of(options))
    return LiveJudge("it", detector, tokenizer).prompter


def prompts_of(detector: Detector, options: Options, questions: Sequence[str]) -> list[str]:
    """As the detector's prompt puts them, with a BOS where it has one: tokenizers of GGUF files add none."""
    prompter = prompter_of(detector, options)
    prompts = [prompter(question) for question in questions]
    return [prompt.bos * str(prompter.tokenizer.bos_token) + prompt.text for prompt in prompts]


@check.step("data", "models", "vllm_python")
def agreement(options: Options, work: Path) -> Figures:
    """Decisions and scores of the server beside those of `Detector.answer`."""
    detector, model = Detector.load(options.detector), model_of(options)
    chosen = options.settings.split(",") if options.settings else list(SETTINGS)
    questions = questions_of(options, options.questions)
    if not {*chosen} & ALL_QUESTIONS:
        questions = questions[: options.questions // 5]
    network = open_model(str(model), dtype="float32")
    expected: list[JudgedAnswer] = []
    for start in range(0, len(questions), 64):
        expected += detector.answer(network, questions[start : start + 64])
    prompts = prompts_of(detector, options, questions)
    figures: Figures = {}
    port = free_port()
    for name in chosen:
        flags = SETTINGS[name]
        asked = prompts if name in ALL_QUESTIONS else prompts[: options.questions // 5]
        try:
            with VllmServer(options.vllm_python, model, work / "log", [options.detector], flags, port=port) as server:
                began = time.monotonic()
                replies = asyncio.run(load(server.url, [completion(model, prompt) for prompt in asked], 16))
                took = time.monotonic() - began
                counted = httpx.get(f"{server.url}/metrics").text.splitlines()
                preempted = sum(float(x.split()[-1]) for x in counted if x.startswith("vllm:num_preemptions_total"))
                said = server.said()
        except RefusedError as refused:
            figures[name] = {"refused": str(refused)[-400:]}
            print(name, figures[name], flush=True)
            continue
        figures[name] = {
            **compared(expected, replies),
            "seconds": took,
            "preempted": preempted,
            "compiled code found again": said.count("Directly load"),
        }
        print(name, figures[name], flush=True)
    return figures


def compared(expected: Sequence[JudgedAnswer], replies: Sequence[Reply]) -> Figures:
    """How far replies agree with what the detector itself says."""
    counts: Counter[str] = Counter()
    apart: list[float] = []
    odd: list[Any] = []
    for own, reply in zip(expected, replies, strict=False):
        choice = reply.body["choices"][0]
        told, verdict = choice["anchorscope"], own.verdict
        counts["asked"] += 1
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        same = text.strip() == own.answer
        counts["same answer"] += same
        counts["decided alike"] += told["decision"] == verdict.decision
        counts["alike where the answer is the same"] += same and told["decision"] == verdict.decision
        counts[f"server: {told['decision']}"] += 1
        counts[f"detector: {verdict.decision}"] += 1
        if told["decision"] != verdict.decision:
            odd.append([own.question, own.answer, text, verdict.decision, verdict.reason, told["decision"],
                        told["reason"]])  # fmt: skip
        if same and told["score"] is not None and verdict.score is not None:
            apart.append(abs(told["score"] - verdict.score))
    figures: Figures = {**counts, "decided otherwise": odd[:10]}
    if apart:
        figures |= {"score, largest difference": max(apart), "score, median difference": statistics.median(apart)}
    return figures


@check.step("data", "models", "vllm_python", by_default=False)
def cost(options: Options, work: Path) -> Figures:
    """CPU time, throughput and latency with verdicts and without, in turns."""
    detector, model = Detector.load(options.detector), model_of(options)
    prompts = prompts_of(detector, options, questions_of(options, 400))
    figures: Figures = {}
    for mode in options.modes.split(","):
        python, flags = options.vllm_python, (*ONE_PROCESS, *(EAGER if mode == "eager" else ()))
        with VllmServer(python, model, work / "plain.log", flags=flags) as plain:
            plain.still()
            with VllmServer(python, model, work / "with.log", [options.detector], flags) as judged:
                plain.again()
                figures[mode] = in_turns(options.rounds, model, prompts, {"without": plain, "with": judged})
                print(mode, figures[mode], flush=True)
    return figures


@check.step("data", "models", "vllm_python")
def mixed(options: Options, work: Path) -> Figures:
    """Spellings that lead around the verdict, then requests of every kind, a tenth of them aborted.

    Counts requests that failed, answers without a verdict, and verdicts that are not those of the prompt asked alone.
    The same requests go to a server without verdicts at the same time, whose memory stands beside.
    """
    detector, model = Detector.load(options.detector), model_of(options)
    prompts = prompts_of(detector, options, questions_of(options, 200))
    draw, counts = random.Random(1), Counter[str]()
    tenths = [[any_request(draw, model, prompts) for _ in range(options.requests // TENTHS)] for _ in range(TENTHS)]
    flags = (*EAGER, *ONE_PROCESS, "--dtype", options.dtype)  # a core for each server
    with (
        VllmServer(options.vllm_python, model, work / "plain.log", flags=flags) as plain,
        VllmServer(options.vllm_python, model, work / "log", [options.detector], flags) as server,
    ):

        async def to_both(asked: Sequence[dict[str, Any]], at_once: int) -> list[Reply]:
            """The replies of the server with verdicts."""
            both = await asyncio.gather(*(load(each.url, asked, at_once) for each in (plain, server)))
            return both[1]

        replies = asyncio.run(to_both([completion(model, prompt) for prompt in prompts], 4))
        alone = {prompt: reply.body["choices"][0] for prompt, reply in zip(prompts, replies, strict=True)}
        prompt = next(prompt for prompt in prompts if alone[prompt]["anchorscope"]["score"] is not None)
        text = json.dumps(alone[prompt]["text"])[1:-1].encode()
        spelled = try_spellings(server.port, completion(model, prompt), text)
        memory, bare = [server.megabytes()], [plain.megabytes()]
        for asked in tenths:
            for data, reply in zip(asked, asyncio.run(to_both(asked, 32)), strict=True):
                counts.update([*outcomes(data, reply), *crossed(data, reply, alone)])
            memory.append(server.megabytes())
            bare.append(plain.megabytes())
            print(dict(counts), [round(each) for each in memory], [round(each) for each in bare], flush=True)
        status = httpx.get(f"{server.url}/anchorscope/status", timeout=60).json()
        scores = [each["anchorscope"]["score"] for each in alone.values() if each["anchorscope"]["score"] is not None]
        failed = server.said().count("Traceback")
    return {
        "spellings": dict(spelled),
        "counts": dict(counts),
        "scores of different prompts, SD": round(float(np.std(scores)), 2),
        "memory in MB": [round(each) for each in memory],
        "memory in MB without verdicts": [round(each) for each in bare],
        "errors in the log": failed,
        **{name: status[name] for name in ("rows", "verdicts", "reasons")},
    }


@check.step("data", "models", "vllm_python", by_default=False)
def chat(options: Options, work: Path) -> Figures:
    """A detector of chats, asked as its `request` says, streamed and not, beside `Detector.answer`."""
    detector, model = Detector.load(options.chat), model_of(options)
    questions = questions_of(options, options.questions // 5)
    expected = detector.answer(open_model(str(model), dtype="float32"), questions)
    asked = [{**detector.request(each), "model": str(model), "path": "/v1/chat/completions"} for each in questions]
    with VllmServer(options.vllm_python, model, work / "log", [options.chat], EAGER) as server:
        replies = asyncio.run(load(server.url, asked, 16))
        streamed = asyncio.run(load(server.url, [{**data, "stream": True} for data in asked[:40]], 16))
    return {"whole": compared(expected, replies), "streamed": compared(expected[:40], streamed)}


@check.step("data", "models", "vllm_python", by_default=False)
def adapter(options: Options, work: Path) -> Figures:
    """A LoRA adapter with a detector that was fitted on the merged model, while the model itself is asked too.

    Answers of the model and of a second adapter have no detector and must be *cannot say*. With one for the model too,
    a server that mixes up the two in a batch must not start.
    """
    detector, model = Detector.load(options.tuned), model_of(options)
    questions = questions_of(options, options.questions // 5)
    expected = detector.answer(open_model(str(options.merged), dtype="float32"), questions)
    folder = options.merged.parent / "adapter"
    lora = ("--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"support={folder}", f"other={folder}")
    flags, tuned = (*EAGER, *lora), Path(f"{options.tuned}@support")
    names = ("support", "other", str(model))
    asked = [
        {**completion(model, prompt), "model": name}
        for prompt in prompts_of(detector, options, questions)
        for name in names
    ]  # of all three at the same time
    with VllmServer(options.vllm_python, model, work / "log", [tuned], flags) as server:
        replies = asyncio.run(load(server.url, asked, 16))
        parity = httpx.get(f"{server.url}/anchorscope/status", timeout=60).json()["parity"]
    figures: Figures = {"support": compared(expected, replies[:: len(names)]), "parity": parity}
    for number, name in enumerate(names[1:], 1):
        said = [reply.body["choices"][0]["anchorscope"] for reply in replies[number :: len(names)]]
        figures[name] = dict(Counter(f"{each['decision']}: {each['reason']}" for each in said))
    both = VllmServer(options.vllm_python, model, work / "log", [options.detector, tuned], flags)
    return {**figures, "with one for the model too": _starts(both)}


@check.step("data", "models", "vllm_python", by_default=False)
def reload(options: Options, work: Path) -> Figures:
    """A detector whose files change while it is served: another promise is taken, other weights are not."""
    detector, model = Detector.load(options.detector), model_of(options)
    prompts = prompts_of(detector, options, questions_of(options, 200))
    path, figures = work / "guard", {}
    detector.save(path)
    with VllmServer(options.vllm_python, model, work / "log", [path], EAGER) as server:

        def asked() -> Figures:
            time.sleep(6)  # longer than the server waits between two looks at the files
            asyncio.run(load(server.url, [completion(model, prompts[0])], 1))
            replies = asyncio.run(load(server.url, [completion(model, prompt) for prompt in prompts], 16))
            told = [reply.body["choices"][0]["anchorscope"] for reply in replies]
            versions = sorted({each["version"] for each in told})
            return {**Counter(each["decision"] for each in told), "versions": versions}

        figures["as it was"] = asked()
        other = detector.at(0.5)
        other.save(path)
        figures["another base rate"] = asked()
        weights = {name: 2 * value for name, value in other.fitted.states.items()}
        replace(other, fitted=replace(other.fitted, states=weights)).save(path)
        figures["other weights"] = asked()
        Path(f"{path}.json").write_text("{", encoding="utf-8")
        figures["damaged"] = asked()
        said = server.said()
    needed = "needs a restart of the server", "could not be loaded", "was loaded, version"
    return {**figures, **{each: said.count(each) for each in needed}}


def crossed(data: dict[str, Any], reply: Reply, alone: dict[str, Any]) -> list[str]:
    """Whether the verdict on a greedy answer is the one that its prompt got alone."""
    if reply.status != 200 or data["kind"] not in ("plain", "streamed"):
        return []
    now, then = reply.body["choices"][0], alone[data["prompt"]]
    if now["text"] != then["text"] or None in (now["anchorscope"]["score"], then["anchorscope"]["score"]):
        return ["not compared"]
    apart = abs(now["anchorscope"]["score"] - then["anchorscope"]["score"])
    return [next(f"score within {limit:g}" for limit in (0.01, 0.1, 0.5, math.inf) if apart < limit)]


@check.step("data", "models", "vllm_python")
def refused(options: Options, work: Path) -> Figures:
    """Servers that must not start: another revision, coarse weights, swapped layers, and a graph without hooks."""
    model = model_of(options)
    figures: Figures = {}
    for name, change in CHANGES.items():
        folder = work / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        change_model(model, folder, change)
        dtypes = ("float32",) if name == "swapped layers" else ("float32", "bfloat16")
        for dtype in dtypes:
            precise = (*EAGER, "--dtype", dtype)
            started = _starts(VllmServer(options.vllm_python, folder, work / "log", [options.detector], precise))
            figures[f"{name}, {dtype}"] = started
            print(name, dtype, started, flush=True)
    # the middleware without the worker: nobody sends states
    config = ServeConfig(*named([options.detector]), socket=private_socket("without"))
    flags = ("--middleware", MIDDLEWARE, "--additional-config", json.dumps(config.record()), *EAGER)
    figures["hooks missing"] = _starts(VllmServer(options.vllm_python, model, work / "log", flags=flags))
    return figures


def _starts(server: VllmServer) -> str:
    try:
        with server:
            return "STARTED"
    except RefusedError as error:
        return f"refused: {str(error)[-300:]}"


@check.step("data", "models", "vllm_python")
def failures(options: Options, work: Path) -> Figures:
    """Slow and vanishing clients; then the engine is killed: no verdict is made up, and no client waits for ever."""
    detector, model = Detector.load(options.detector), model_of(options)
    prompts = prompts_of(detector, options, questions_of(options, 200))
    figures: Figures = {}
    with VllmServer(options.vllm_python, model, work / "log", [options.detector], EAGER) as server:
        gone = [completion(model, prompt, stream=True, leave_after=0.2) for prompt in prompts[:100]]
        asyncio.run(load(server.url, gone, 32))
        replies = asyncio.run(load(server.url, [completion(model, prompt) for prompt in prompts[:50]], 8))
        figures["after 100 vanished clients"] = dict(
            Counter(r.body["choices"][0]["anchorscope"]["decision"] for r in replies)
        )
        figures["requests left behind"] = httpx.get(f"{server.url}/anchorscope/status").json()["rows"]["waiting"]

        async def killed() -> list[Reply]:
            asked = [completion(model, prompt, max_tokens=200, stop=None, ignore_eos=True) for prompt in prompts[:16]]
            task = asyncio.create_task(load(server.url, asked, 16, timeout=60))
            await asyncio.sleep(1.5)
            os.kill(server.named("EngineCore"), signal.SIGKILL)
            return await task

        start = time.monotonic()
        replies = asyncio.run(killed())
        figures["engine killed"] = {
            "seconds until all clients knew": round(time.monotonic() - start, 1),
            "statuses": dict(Counter(str(reply.status) for reply in replies)),
            "passes": sum(
                choice.get("anchorscope", {}).get("decision") == "pass"
                for reply in replies
                for choice in reply.body.get("choices", ())
            ),
        }
    return figures


@check.step("data", "models", "vllm_python")
def client(options: Options, work: Path) -> Figures:
    """The official client, streamed and not: its own code, in vLLM's environment."""
    detector, model = Detector.load(options.detector), model_of(options)
    prompts = prompts_of(detector, options, questions_of(options, 20))
    with VllmServer(options.vllm_python, model, work / "log", [options.detector], EAGER) as server:
        asked = json.dumps({"url": f"{server.url}/v1", "model": str(model), "prompts": prompts})
        code = Path(__file__).with_name("helpers") / "openai_client.py"
        done = subprocess.run(
            [options.vllm_python, str(code)], input=asked, capture_output=True, text=True, check=True, timeout=600
        )
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


@check.step("data", "models", "vllm_python")
def proxy(options: Options, work: Path) -> Figures:
    """The proxy before a plain server, beside the same detector inside a server and in the library."""
    detector, model = Detector.load(options.confidence), model_of(options)
    questions = questions_of(options, options.questions // 5)
    network = open_model(str(model), dtype="float32")
    expected = detector.answer(network, questions)
    prompts = prompts_of(detector, options, questions)
    asked = [completion(model, prompt) for prompt in prompts]
    python = options.vllm_python
    with (
        VllmServer(python, model, work / "plain.log", flags=EAGER) as plain,
        VllmServer(python, model, work / "proxy.log", [options.confidence], endpoint=plain.url) as between,
    ):
        replies = asyncio.run(load(between.url, asked, 8))
        streamed = asyncio.run(load(between.url, [{**data, "stream": True} for data in asked[:40]], 8))
    return {"whole": compared(expected, replies), "streamed": compared(expected[:40], streamed)}


@check.step("data", "models", "vllm_python", by_default=False)
def latency(options: Options, work: Path) -> Figures:
    """Seconds of requests, 64 at once, to the proxy and to the endpoint behind it, in turns; and those of verdicts."""
    detector, model = Detector.load(options.confidence), model_of(options)
    prompts, python = prompts_of(detector, options, questions_of(options, 400)), options.vllm_python
    seconds: dict[str, list[float]] = {"endpoint": [], "proxy": []}
    with (
        VllmServer(python, model, work / "plain.log", flags=EAGER) as plain,
        VllmServer(python, model, work / "proxy.log", [options.confidence], endpoint=plain.url) as between,
    ):
        for turn in range(options.rounds + 1):  # the first warms up
            asked = [completion(model, prompt) for prompt in random.Random(turn).choices(prompts, k=128)]
            for who, server in (("endpoint", plain), ("proxy", between)):
                replies = asyncio.run(load(server.url, asked, 64))
                seconds[who] += [reply.seconds for reply in replies] if turn else []
        told = httpx.get(f"{between.url}/metrics").text.splitlines()
    buckets = {line.split('"')[1]: float(line.split()[-1]) for line in told if "verdict_seconds_bucket" in line}
    figures: Figures = {
        who: {f"p{share}, s": round(float(np.percentile(each, share)), 3) for share in (50, 99)}
        for who, each in seconds.items()
    }
    return {**figures, "verdicts that took at most so many seconds": buckets}


@check.step("data", "models", "vllm_python", by_default=False)
def profile(options: Options, work: Path) -> Figures:
    """Where the process in front and the engine spend their time under 16 requests at once, in %."""
    detector, model = Detector.load(options.detector), model_of(options)
    prompts, seconds = prompts_of(detector, options, questions_of(options, 400)), 60
    with VllmServer(options.vllm_python, model, work / "log", [options.detector], (*EAGER, *ONE_PROCESS)) as server:
        asyncio.run(load(server.url, [completion(model, prompt) for prompt in prompts[:50]], 16))
        pids = {"front": server.process.pid, "engine": server.named("EngineCore")}
        profiles = {who: Profile(pid, seconds, work / who) for who, pid in pids.items()}
        end, answers = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            answers += len(asyncio.run(load(server.url, [completion(model, prompt) for prompt in prompts[:100]], 16)))
        return {"answers": answers, **{who: each.shares() for who, each in profiles.items()}}


check.option("--model", "Serve this model, by its name in weights.py", "smollm2-135m")
check.option("--detector", "Serve this detector, fitted on SmolLM2-135M in float32", f"{PUBLISHED}-one-layer",
             metavar="PATH", type=Path)  # fmt: skip
check.option("--confidence", "Serve this one, of log-probabilities alone, by the proxy", f"{PUBLISHED}-confidence",
             metavar="PATH", type=Path)  # fmt: skip
check.option("--chat", "Serve this detector of chats, for the step chat", "chat", metavar="PATH", type=Path)
check.option("--tuned", "Serve this detector for an adapter, for the step adapter", "tuned", metavar="PATH", type=Path)
check.option("--merged", "The model with the adapter merged; the adapter is in the folder `adapter` beside it",
             "merged", metavar="DIR", type=Path)  # fmt: skip
check.option("--questions", "Ask this many questions", 1_000)
check.option("--requests", "Send this many mixed requests", 2_000)
check.option("--dtype", "Send mixed requests to servers in this dtype", "float32")
check.option("--settings", "Compare in these settings, such as bfloat16 (all)", "")
check.option("--modes", "Measure the cost in these modes", "eager,compiled")
check.option("--rounds", "Measure the cost this often", 8)

if __name__ == "__main__":
    check()
