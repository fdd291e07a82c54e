"""The guardrail in a real LiteLLM proxy before real servers: does it do what the verdicts say, and does text leak?

    python checks/litellm_guardrail.py --models DIR --litellm-python PYTHON

Two servers (`anchorscope serve --endpoint`) stand before a small endpoint with real answers of SmolLM2. One judges
completions with a published detector, the other chats with the same detector under a chat prompt. Each request is sent
to its server and through LiteLLM, and both are compared. Every request has a seed, and its kind is drawn.

Steps: `imports` times the import of the guardrail; `applied` sends requests to a LiteLLM that blocks, replaces and
tags; `routes` asks on other paths of LiteLLM; `settings` starts LiteLLM with settings that are wrong.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from anchorscope.detectors.detector import KnownAnswer
from anchorscope.detectors.session import Detector, template_hash
from anchorscope.models.opened import open_model
from anchorscope.models.prompts import Prompter
from anchorscope.questions.record import Question
from anchorscope.serve.judge import LiveJudge
from anchorscope.study import PromptSpec
from helpers.litellm_proxy import LitellmProxy, Seen
from helpers.small_endpoint import CHAT, SmallEndpoint
from helpers.steps import ROOT, Check, Figures, Options
from helpers.vllm_server import VllmServer
from weights import unpacked

check = Check(__doc__)
check.option("--requests", "Send this many requests in all", 500)
check.option("--at-once", "Send so many at a time", 4)

MODEL = "smollm2-135m"
PUBLISHED = ROOT / "results/small-models/detectors/smollm2-135m-confidence"
RATES = {"text": 0.7, "chat": 0.6}  # base rates at which all decisions occur
SENTENCE = "[held back]"
PATHS = {"text": "/v1/completions", "chat": CHAT}
RUNS: dict[str, list[str]] = {"block": ["pass"], "replace": ["pass", "doubtful"], "tag": ["pass"]}
"""What is done with answers, and what is shown."""
OTHER = "Once upon a time there was"


def chat_detector(detector: Detector, endpoint: SmallEndpoint) -> Detector:
    """The same detector for a chat prompt, with the model's answers to it."""
    model = endpoint.model
    spec = PromptSpec(**{**detector.about.prompt, "style": "chat"})
    about = replace(detector.about, prompt=spec.model_dump(mode="json"),
                    template=template_hash(Prompter(model.tokenizer, spec, model.wants_bos)))  # fmt: skip
    judge, known = LiveJudge("chat", replace(detector, about=about), model.tokenizer), []
    for question in (answer.question for answer in detector.known_answers):
        prompt = judge.prompter(question)
        answer = endpoint.answer(prompt.ids)
        text = "".join(answer.tokens).strip()
        sample = judge.maker(Question.asked(question, [], None), text, None, answer.logprobs, prompt)
        known.append(KnownAnswer(question, answer.ids, judge.score(sample, None)))
    return replace(judge.detector, known_answers=known)


@contextmanager
def served(options: Options, work: Path) -> Iterator[dict[str, tuple[Detector, VllmServer]]]:
    """The two servers, with their detectors."""
    folder = unpacked(MODEL, options.models)
    with ExitStack() as stack:
        endpoint = stack.enter_context(SmallEndpoint(open_model(str(folder), dtype="float32")))
        detector = Detector.load(PUBLISHED)
        found = {}
        for name, made in (("text", detector), ("chat", chat_detector(detector, endpoint))):
            made = made.at(RATES[name])
            made.save(work / name)
            server = VllmServer(sys.executable, folder, work / f"{name}.log", [work / name], endpoint=endpoint.url)
            found[name] = (made, stack.enter_context(server))
        yield found


def request_of(number: int, name: str, detector: Detector, model: str) -> dict[str, Any]:
    """A request of some kind."""
    draw = random.Random(number)
    known = draw.choice(detector.known_answers)
    data = {**detector.request(known.question), "model": model, "stream": draw.random() < 0.5}
    kind = draw.choices(["plain", "drawn", "other prompt", "off"], [80, 7, 8, 5])[0]
    if kind == "drawn":
        data["temperature"] = 1
    elif kind == "other prompt":
        data |= {"messages": [{"role": "user", "content": OTHER}]} if name == "chat" else {"prompt": OTHER}
    elif kind == "off":
        data["vllm_xargs"] = {"anchorscope": "off"}
    if draw.random() < 0.25:
        data["n"] = 2
    if data["stream"] and draw.random() < 0.3:
        data["stream_options"] = {"include_usage": True}
    return data


async def ask(client: httpx.AsyncClient, url: str, data: dict[str, Any], headers: dict[str, str]) -> Seen:
    response = await client.post(url, json=data, headers=headers)
    return Seen(response.status_code, response.content)


def compare(counts: Counter[str], direct: Seen, client: Seen, otherwise: str, show: Sequence[str]) -> None:
    """Count whether LiteLLM's client got what the server's verdicts say, and text that it should not have."""
    decisions = [(verdict or {"decision": "no verdict"})["decision"] for _, verdict in direct.choices.values()]
    counts.update(decisions)
    shown = [decision in show for decision in decisions]
    texts = [text.strip() for text, _ in direct.choices.values()]
    if otherwise != "tag":
        counts["LEAKS"] += any(client.holds(text) for text, may in zip(texts, shown, strict=True) if not may)
    counts["agree"] += agrees(direct, client, otherwise, shown)
    counts["shown"] += sum(shown)
    counts["held back"] += len(shown) - sum(shown)


def agrees(direct: Seen, client: Seen, otherwise: str, shown: Sequence[bool]) -> bool:
    """Whether a client of LiteLLM got what the verdicts of the server say."""
    if otherwise == "block" and not all(shown):
        first = next(verdict for (_, verdict), may in zip(direct.choices.values(), shown, strict=True) if not may)
        decision = (first or {"decision": "cannot say"})["decision"]
        return client.status == 400 and client.holds(f"The decision on it is: {decision}")
    if client.status != 200 or len(client.choices) != len(shown):
        return False
    for (text, verdict), (said, told), may in zip(direct.choices.values(), client.choices.values(), shown, strict=True):
        if said != (text if may or otherwise == "tag" else SENTENCE):
            return False
        if told is None or told["decision"] != (verdict or {"decision": "cannot say"})["decision"]:
            return False
    return True


@check.step("litellm_python")
def imports(options: Options, work: Path) -> Figures:
    """What importing the guardrail loads, and what it adds to the import of LiteLLM."""
    program = """
import sys, time
import litellm.integrations.custom_guardrail, litellm.types.utils
before, start = set(sys.modules), time.perf_counter()
import anchorscope.serve.guardrail
took, new = time.perf_counter() - start, set(sys.modules) - before
import json, importlib.metadata
heavy = [name for name in ("torch", "transformers", "numpy", "sklearn") if name in new]
print(json.dumps({"litellm": importlib.metadata.version("litellm"), "milliseconds": round(1000 * took, 1),
                  "modules": sorted(name for name in new if name.startswith("anchorscope")), "heavy": heavy}))
"""
    environment = {"PYTHONPATH": str(ROOT / "src"), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run([options.litellm_python, "-c", program], env=environment, capture_output=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@check.step("models", "litellm_python")
def applied(options: Options, work: Path) -> Figures:
    """What clients get beside what the servers say, for each action, streamed and not."""
    figures: Figures = {}
    with served(options, work) as servers:
        behind = {name: (f"openai/{server.model}", server.url) for name, (_, server) in servers.items()}
        for turn, (otherwise, show) in enumerate(RUNS.items()):
            numbers = range(turn, options.requests, len(RUNS))
            settings = {"otherwise": otherwise, "show": show, "text": SENTENCE}
            with LitellmProxy(options.litellm_python, work, behind, **settings) as proxy:
                figures[otherwise] = asyncio.run(_sent(options, proxy, servers, numbers, otherwise, show))
    names = dict.fromkeys(name for counts in figures.values() for name in counts)
    return {"in all": {name: sum(counts.get(name, 0) for counts in figures.values()) for name in names}, **figures}


async def _sent(
    options: Options, proxy: LitellmProxy, servers: Any, numbers: Sequence[int], otherwise: str, show: Sequence[str]
) -> Figures:
    counts, todo = Counter[str](), iter(numbers)
    odd: list[Any] = []
    async with httpx.AsyncClient(timeout=120) as client:

        async def work() -> None:
            for number in todo:
                name = ("text", "chat")[number % 2]
                detector, server = servers[name]
                data = request_of(number, name, detector, str(server.model))
                direct = await ask(client, server.url + PATHS[name], data, {})
                through = await ask(client, proxy.url + PATHS[name], {**data, "model": name}, proxy.headers)
                before = counts["agree"]
                compare(counts, direct, through, otherwise, show)
                counts["requests"] += 1
                counts["streamed" if data["stream"] else "whole"] += 1
                if counts["agree"] == before and len(odd) < 3:
                    odd.append([data, direct.body.decode()[:500], through.status, through.body.decode()[:500]])

        await asyncio.gather(*(work() for _ in range(options.at_once)))
    for each in odd:
        print("DIFFERENT", *each, flush=True)
    return dict(counts)


@check.step("models", "litellm_python")
def routes(options: Options, work: Path) -> Figures:
    """Other paths of LiteLLM that give answers. None may show one, since the verdict is lost there."""
    figures: Figures = {}
    with served(options, work) as servers:
        detector, server = servers["chat"]
        behind = {kind: (f"{kind}/{server.model}", server.url) for kind in ("openai", "hosted_vllm")}
        question = detector.known_answers[0].question
        turns = detector.request(question)["messages"]
        direct = httpx.post(server.url + CHAT, json={"model": str(server.model), "messages": turns}, timeout=60)
        answer = direct.json()["choices"][0]["message"]["content"]
        with LitellmProxy(options.litellm_python, work, behind, otherwise="replace", text=SENTENCE) as proxy:
            for path, body in (
                ("/v1/responses", {"input": turns}),
                ("/v1/messages", {"messages": turns, "max_tokens": 24}),
            ):
                for model in behind:
                    for stream in (False, True):
                        data = {"model": model, "stream": stream, "temperature": 0, **body}
                        got = httpx.post(proxy.url + path, json=data, headers=proxy.headers, timeout=60)
                        leaked = Seen(got.status_code, got.content).holds(answer)
                        where = f"{path}, {model}, {'streamed' if stream else 'whole'}"
                        figures[where] = f"status {got.status_code}{', LEAKED' if leaked else ''}"
    return figures


@check.step("litellm_python")
def settings(options: Options, work: Path) -> Figures:
    """Settings that are wrong must stop LiteLLM: it starts without a guardrail whose error is a ValueError."""
    figures: Figures = {}
    for wrong in ({"show": "pass"}, {"show": ["good"]}, {"otherwise": "hide"}, {"mode": "pre_call"}, {"text": 3}):
        try:
            with LitellmProxy(options.litellm_python, work, {}, **wrong):
                figures[str(wrong)] = "STARTED"
        except SystemExit as error:
            lines = [line for line in str(error).splitlines() if "AnchorscopeError" in line]
            figures[str(wrong)] = lines[-1] if lines else str(error)[-300:]
    return figures


@check.judge
def verdict(figures: Figures) -> None:
    """Stop with an error where something differs or leaks."""
    if "applied" in figures:
        totals = figures["applied"]["in all"]
        if totals["agree"] != totals["requests"] or totals["LEAKS"]:
            raise SystemExit("LiteLLM's clients did not get what the verdicts say")
    if any(word in json.dumps(figures) for word in ("LEAKED", "STARTED")) or figures.get("imports", {}).get("heavy"):
        raise SystemExit("An answer leaked, LiteLLM started with wrong settings, or a heavy package was imported")


if __name__ == "__main__":
    check()
