"""Does serving fail closed, and can files and studies from strangers be trusted?

    python checks/closed.py [STEP …]

Steps: `spellings` sends requests that try to get around the verdict; `fuzz` sends random requests to the proxy before
an endpoint that misbehaves in every way; `clients` leaves in the middle, sends large bodies, and looks for cookies
of others; `full_disk` fills the disk under the audit log; `splitter` measures what a chunk of a stream costs, beside
`--before`; `vllm` sends the spellings and mixed requests to a real vLLM server; `flips`, `detectors` and `kills`
damage files; `ray` lets a stranger's study and run name a Ray cluster.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from transformers import AutoTokenizer

from anchorscope.detectors.session import Detector
from anchorscope.models.prompts import Prompter
from anchorscope.questions.file_rows import FileRows
from anchorscope.study import PromptSpec
from anchorscope.study.validation import build
from helpers.closed_proxy import made_up_judge, score_of
from helpers.closed_requests import Fuzz, raw_ask
from helpers.closed_requests import spellings as try_spellings
from helpers.damage import bad_detectors, flip_run
from helpers.damage import kills as kill_runs
from helpers.misbehaving import QUESTIONS, Misbehaving
from helpers.runs import LIGHT_PROBES
from helpers.server_requests import any_request, completion, outcomes
from helpers.steps import COMMAND, ROOT, Check, Figures, Options, use_tests
from helpers.strangers import ray_attacks
from helpers.vllm_server import TICK, Reply, VllmServer, free_port, load
from weights import unpacked

check = Check(__doc__)
DETECTOR = ROOT / "results" / "small-models" / "detectors" / "smollm2-135m-one-layer"
EAGER = ("--enforce-eager",)


class ProxyProcess:
    """The proxy in a process of its own, before an endpoint in this one."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port

    def megabytes(self) -> float:
        """Memory that it holds (resident)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024

    def cpu(self) -> float:
        """Seconds of CPU time that it took."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    async def status(self) -> dict[str, Any]:
        """Its counts."""
        async with httpx.AsyncClient() as client:
            return dict((await client.get(f"http://127.0.0.1:{self.port}/anchorscope/status", timeout=60)).json())


async def started(endpoint: Misbehaving, work: Path, *arguments: str) -> ProxyProcess:
    """Start the endpoint and the proxy before it."""
    behind, port = free_port(), free_port()
    await endpoint.start(behind)
    command = [sys.executable, str(Path(__file__).with_name("helpers") / "closed_proxy.py"), str(behind), str(port)]
    with (work / "proxy.log").open("wb") as log:
        process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log)
    proxy = ProxyProcess(process, port)
    for _ in range(240):
        try:
            await proxy.status()
            return proxy
        except httpx.HTTPError:
            await asyncio.sleep(0.5)
    raise SystemExit(f"the proxy did not start: {(work / 'proxy.log').read_text()[-2000:]}")


def prompt_of(question: str) -> str:
    """A question as the detector's prompt puts it."""
    return str(made_up_judge().prompter(question).text)


@check.step()
def spellings(options: Options, work: Path) -> Figures:
    """Paths, methods and bodies that lead around the verdict of the proxy."""

    async def act() -> Figures:
        proxy = await started(Misbehaving(), work)
        request = {"model": "m", "prompt": prompt_of(QUESTIONS[3])}
        try:
            return dict(await asyncio.to_thread(try_spellings, proxy.port, request, b"Danube"))
        finally:
            proxy.process.kill()

    return asyncio.run(act())


@check.step()
def fuzz(options: Options, work: Path) -> Figures:
    """Random requests to the proxy before an endpoint that misbehaves."""

    async def act() -> Figures:
        judge = made_up_judge()
        random_requests = Fuzz([judge.prompter(question).text for question in QUESTIONS], lambda p: score_of(judge, p))
        proxy = await started(Misbehaving(), work, "--audit", str(work / "audit.jsonl"))
        try:
            first = min(2_000, options.requests)
            await random_requests.run(proxy.port, first, options.at_once)
            early = proxy.megabytes()
            await random_requests.run(proxy.port, options.requests - first, options.at_once, first)
            status = await proxy.status()
        finally:
            late = proxy.megabytes()
            proxy.process.kill()
        counts = random_requests.counts
        return {
            **{name: counts[name] for name in ("requests", "answered", "SILENT", "CROSSED", "HANG", "NO MARK")},
            "outcomes": dict(counts),
            "odd": random_requests.odd,
            "memory in MB, after 2,000 and at the end": [round(early), round(late)],
            "memory, ratio": round(late / early, 3),
            "status": {name: status[name] for name in ("verdicts", "reasons", "incidents")},
        }

    return asyncio.run(act())


@check.step()
def clients(options: Options, work: Path) -> Figures:
    """Clients that leave, many connections, large bodies, the cookies of others, headers between two hosts."""

    async def act() -> Figures:
        endpoint = Misbehaving()
        proxy = await started(endpoint, work, "--body", "64")
        prompt, port = prompt_of(QUESTIONS[3]), proxy.port
        base = {"model": "m", "prompt": prompt}
        figures: Figures = {}
        try:
            slow = {**base, "behaviour": "slow", "stream": True, "chunks": 200, "pause": 0.05}
            await _leave(port, slow, 0.5)
            chunks = endpoint.chunks
            await asyncio.sleep(3)
            figures["chunks made after the client left (of 200)"] = endpoint.chunks - chunks
            await asyncio.gather(*(_leave(port, {**slow, "pause": 0.2}, 1.0) for _ in range(110)))
            start = time.perf_counter()
            async with httpx.AsyncClient(timeout=60) as client:
                await client.get(f"http://127.0.0.1:{port}/v1/models")
            figures["seconds until /v1/models answered after 110 clients left"] = round(time.perf_counter() - start, 2)
            for size in (16, 63):
                before = proxy.cpu()
                body = json.dumps({**base, "user": "a" * (size << 20)}).encode()
                status, mark, _ = await asyncio.to_thread(raw_ask, port, "POST", "/v1/completions", body)
                figures[f"{size} MiB"] = {"status": status, "mark": mark, "CPU seconds": round(proxy.cpu() - before, 2)}
            tokens = {"authorization": "Bearer k", "proxy-authorization": "Basic c2VjcmV0", "te": "trailers",
                      "connection": "close, x-hop", "x-hop": "1"}  # fmt: skip
            for marker, behaviour, headers in ((1, "cookie", {}), (2, "usual", tokens)):
                body = json.dumps({**base, "marker": marker, "behaviour": behaviour}).encode()
                await asyncio.to_thread(raw_ask, port, "POST", "/v1/completions", body, headers)
            figures["headers of the second client at the endpoint"] = sorted(endpoint.headers["2"])
        finally:
            proxy.process.kill()
        return figures

    return asyncio.run(act())


async def _leave(port: int, request: dict[str, Any], seconds: float) -> None:
    """Send a request, and close the connection after some time."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(request).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await asyncio.sleep(seconds)
    writer.close()


@check.step()
def full_disk(options: Options, work: Path) -> Figures:
    """An audit log that cannot be written: do verdicts still arrive, and is the failure counted?"""

    async def act() -> Figures:
        proxy = await started(Misbehaving(), work, "--audit", "/dev/full")
        counts = Counter[str]()
        try:
            for streamed in (False, True):
                body = json.dumps({"model": "m", "prompt": prompt_of(QUESTIONS[3]), "stream": streamed}).encode()
                _, _, rest = await asyncio.to_thread(raw_ask, proxy.port, "POST", "/v1/completions", body)
                counts["with a verdict" if b'"decision":"pass"' in rest else "WITHOUT"] += 1
            status = await proxy.status()
        finally:
            proxy.process.kill()
        return {**counts, "audit failed": status["incidents"]["audit failed"]}

    return asyncio.run(act())


@check.step("data", "models", "vllm_python")
def vllm(options: Options, work: Path) -> Figures:
    """The spellings, and mixed requests whose verdicts are compared with those of the same prompts asked alone."""
    detector, model = Detector.load(options.detector), unpacked("smollm2-135m", options.models)
    tokenizer = AutoTokenizer.from_pretrained(model)
    prompter = Prompter(tokenizer, build(PromptSpec, **detector.about.prompt), False)
    rows = [row for _, row in FileRows(options.data / "triviaqa.jsonl")]
    prompts = [prompter(str(row["question"])).text for row in rows[:: len(rows) // 100][:100]]
    with VllmServer(options.vllm_python, model, work / "log", [options.detector], EAGER) as server:
        alone = asyncio.run(load(server.url, [completion(model, prompt) for prompt in prompts], 4))
        expected = {prompt: reply.body["choices"][0] for prompt, reply in zip(prompts, alone, strict=True)}
        judged = [choice for choice in expected.values() if choice["anchorscope"]["decision"] != "cannot say"]
        prompt = next(prompt for prompt, choice in expected.items() if choice in judged)
        text = json.dumps(expected[prompt]["text"])[1:-1].encode()
        spelled = try_spellings(server.port, completion(model, prompt), text)
        draw, counts = random.Random(1), Counter[str]()
        memory = [server.megabytes()]
        requests = [any_request(draw, model, prompts) for _ in range(options.vllm_requests)]
        for begin in range(0, len(requests), 500):
            part = requests[begin : begin + 500]
            for data, reply in zip(part, asyncio.run(load(server.url, part, options.at_once)), strict=True):
                counts.update([*outcomes(data, reply), *_compared(data, reply, expected)])
            memory.append(server.megabytes())
            print(dict(counts), flush=True)
        status = httpx.get(f"{server.url}/anchorscope/status", timeout=60).json()
    return {
        "asked alone": dict(Counter(choice["anchorscope"]["decision"] for choice in expected.values())),
        "spellings": dict(spelled),
        "SILENT": sum(count for name, count in counts.items() if "SILENT" in name),
        "CROSSED": counts["CROSSED"],
        "mixed": dict(counts),
        "memory in MB": [round(each) for each in memory],
        "status": {name: status[name] for name in ("verdicts", "reasons", "incidents", "rows")},
    }


def _compared(data: dict[str, Any], reply: Reply, expected: dict[str, Any]) -> list[str]:
    """Whether the verdict on a greedy answer is the one that its prompt got alone."""
    if reply.status != 200 or data["kind"] not in ("plain", "streamed"):
        return []
    own, alone = reply.body["choices"][0], expected[data["prompt"]]
    if own["text"] != alone["text"] or None in (own["anchorscope"]["score"], alone["anchorscope"]["score"]):
        return ["not compared"]
    return ["same score" if abs(own["anchorscope"]["score"] - alone["anchorscope"]["score"]) < 0.01 else "CROSSED"]


CHUNKS = """
import asyncio, json, resource, sys, time
from anchorscope.serve.counts import Counts
from anchorscope.serve.desk import Desk
from anchorscope.serve.intercept import Intercepted
class Quick(Desk):
    ids, logprobs = False, True
    async def verdict(self, *arguments): return {"decision": "pass"}
    def status(self): return {}
desk, events = Quick(Counts()), []
for n in range(500):
    given = {"tokens": [" word"], "token_logprobs": [-0.1], "top_logprobs": None, "text_offset": [7 * n]}
    choice = {"index": 0, "text": " word", "logprobs": given, "finish_reason": "stop" if n == 499 else None}
    event = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    events.append(b"data: " + json.dumps(event).encode() + b"\\n\\n")
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for event in events: await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\\n\\n", "more_body": False})
body = json.dumps({"model": "m", "prompt": "x", "stream": True}).encode()
async def receive(): return {"type": "http.request", "body": body, "more_body": False}
async def send(message): pass
scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
async def main():
    for _ in range(int(sys.argv[1])): await Intercepted(app, desk)(dict(scope), receive, send)
asyncio.run(main())
start = time.process_time(); asyncio.run(main()); print((time.process_time() - start) / int(sys.argv[1]) / 500)
"""


@check.step("before")
def splitter(options: Options, work: Path) -> Figures:
    """CPU time per chunk of a stream, of this version and of an older one in turns."""
    seconds: dict[str, list[float]] = {"now": [], "before": []}
    for _ in range(options.rounds):
        for name, source in (("now", ROOT), ("before", options.before)):
            environment = {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                [sys.executable, "-c", CHUNKS, "40"], env=environment, capture_output=True, text=True, check=True
            )
            seconds[name].append(float(done.stdout.split()[-1]))
    least = {name: min(values) for name, values in seconds.items()}
    return {
        "microseconds per chunk": {name: round(1e6 * value, 1) for name, value in least.items()},
        "ratio": round(least["now"] / least["before"], 2),
    }


@check.step()
def flips(options: Options, work: Path) -> Figures:
    """One flipped bit in a table or in a file of tensors of a finished run: is it noticed?"""
    use_tests()
    from tiny_study import write_study  # type: ignore[import-not-found]

    write_study(work, {"tiny": "llama"}, {"north": (20, 30)}, shard_rows=16, probes=LIGHT_PROBES)
    run = work / "runs" / "s"
    subprocess.run([*COMMAND, "run", str(work / "study.yaml"), "--runs", str(run.parent)], check=True)
    return {**flip_run(run)}


@check.step()
def detectors(options: Options, work: Path) -> Figures:
    """Detectors with one wrong value each: refused, or accepted with a number that is not finite?"""
    return {**bad_detectors()}


@check.step()
def kills(options: Options, work: Path) -> Figures:
    """A run that is killed at random moments and resumed, beside an undisturbed one."""
    return {**kill_runs(options.kills)}


@check.step()
def ray(options: Options, work: Path) -> Figures:
    """A study and a run directory from a stranger, each of which names a Ray cluster that would run code here."""
    figures: Figures = {"now": ray_attacks()}
    return figures | ({"before": ray_attacks(options.before)} if options.before else {})


check.option("--kills", "Kill the run this often", 44)
check.option("--requests", "Send this many random requests", 20_000)
check.option("--at-once", "Send this many at a time", 200)
check.option("--vllm-requests", "Send this many mixed requests to vLLM", 2_000)
check.option("--detector", "Serve this detector of SmolLM2-135M", str(DETECTOR), metavar="PATH", type=Path)
check.option("--rounds", "Measure costs this often", 5)

if __name__ == "__main__":
    check()
