"""Random requests to the proxy before an endpoint that misbehaves in every way: no answer leaves without its verdict.

`pytest tests/serve/test_misbehaving.py --requests 20000` sends more of them than a test on every change can.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
import uvicorn

from anchorscope.detectors.detector import KnownAnswer
from anchorscope.detectors.inputs import confidence
from anchorscope.models.prompts import answer_ids
from anchorscope.serve.counts import Counts
from anchorscope.serve.intercept import Admission
from anchorscope.serve.judge import LiveJudge
from anchorscope.serve.proxy import Proxy, TextDesk
from misbehaving import BEHAVIOURS, DIALECTS, QUESTIONS, Misbehaving, logprobs_of, marked_logprobs
from serving import NUMBERS, detector_of
from tiny import tiny_tokenizer

AT_ONCE = 50


def score_of(logprobs: list[float]) -> float:
    """The made-up detector's score of an answer with these log-probabilities, written out."""
    numbers, fitted = confidence([logprobs]), detector_of([], NUMBERS).fitted
    return -float(fitted.bias + sum(weight * numbers[name][0] for name, weight in fitted.numbers.items()))


def made_up_judge() -> LiveJudge:
    """A detector whose known answers are those of the endpoint."""
    judge = LiveJudge("it", detector_of([], NUMBERS), tiny_tokenizer())
    ids = answer_ids(judge.prompter, judge.prompter(QUESTIONS[0]), "Danube")
    known = [KnownAnswer(question, list(ids), score_of(logprobs_of(question))) for question in QUESTIONS]
    return replace(judge, detector=replace(judge.detector, known_answers=known))


def test_no_answer_is_silent_or_has_the_verdict_of_another(pytestconfig: pytest.Config):
    requests = pytestconfig.getoption("--requests")
    judge = made_up_judge()
    fuzz = Fuzz([judge.prompter(question).text for question in QUESTIONS], score_of)

    async def act() -> None:
        endpoint = await Misbehaving().start(0)
        behind = endpoint.sockets[0].getsockname()[1]
        admission = Admission(at_once=512)
        proxy = Proxy(f"http://127.0.0.1:{behind}/v1", TextDesk(judge, Counts()), admission=admission)
        config = uvicorn.Config(proxy, port=0, log_level="critical", lifespan="on", http="h11", interface="asgi3")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            await asyncio.sleep(0.01)  # the endpoint answers the known questions meanwhile
        try:
            await fuzz.run(server.servers[0].sockets[0].getsockname()[1], requests, AT_ONCE)
        finally:
            server.should_exit = True
            endpoint.close()
        while thread.is_alive():
            await asyncio.sleep(0.01)

    asyncio.run(act())
    counts = fuzz.counts
    assert {name: counts[name] for name in ("SILENT", "CROSSED", "HANG", "NO MARK")} == {
        "SILENT": 0, "CROSSED": 0, "HANG": 0, "NO MARK": 0,
    }, fuzz.odd  # fmt: skip
    assert counts["requests"] == requests
    assert counts["pass"] + counts["flag"] > 0.3 * requests


class Fuzz:
    """Random requests to a proxy before a misbehaving endpoint."""

    def __init__(self, prompts: list[str], score: Callable[[list[float]], float]) -> None:
        self.prompts, self.score = prompts, score
        self.counts: Counter[str] = Counter()
        self.odd: list[Any] = []

    async def run(self, port: int, requests: int, at_once: int, begin: int = 0) -> None:
        """So many requests, so many at a time."""
        todo = iter(range(begin, begin + requests))
        limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, limits=limits) as client:

            async def work() -> None:
                for number in todo:
                    await self._one(client, number)

            await asyncio.gather(*(work() for _ in range(at_once)))

    async def _one(self, client: httpx.AsyncClient, number: int) -> None:
        draw, marker = random.Random(number), 100_000 + number
        behaviour = draw.choice(["usual"] * 8 + list(BEHAVIOURS))
        streamed = draw.random() < 0.6
        prompt, dialect = self.prompts[number % len(self.prompts)], draw.choice(DIALECTS)
        data: dict[str, Any] = {"model": "m", "prompt": prompt, "marker": marker, "stream": streamed, "temperature": 0}
        data |= {"behaviour": behaviour, "dialect": dialect}
        if draw.random() < 0.3:
            data["n"] = draw.choice([2, 3])
        elif draw.random() < 0.15:
            data["prompt"] = [data["prompt"], self.prompts[(number + 1) % len(self.prompts)]]
        data |= {"usage": True} if draw.random() < 0.3 else {}
        data |= {"logprobs": draw.choice([0, 1, 5])} if draw.random() < 0.2 else {}
        leaves = streamed and draw.random() < 0.05
        self.counts["requests"] += 1
        body = bytearray()
        try:
            async with client.stream("POST", "/v1/completions", json=data) as response:
                async for part in response.aiter_bytes():
                    body += part
                    if leaves:
                        self.counts["left"] += 1
                        return
        except httpx.TimeoutException:
            self.counts["HANG"] += 1
            return
        except httpx.HTTPError:
            if not body:
                self.counts["connection ended without an answer"] += 1
                return
            self.counts["connection broke off in an answer"] += 1  # what came until then must be marked
        marks = response.headers.get_list("x-anchorscope")
        if not 200 <= response.status_code < 300:
            self.counts[f"status {response.status_code}"] += 1
            self.counts["NO MARK"] += marks != ["not judged"]
            return
        self._judge(behaviour, marker, bytes(body), marks, response.headers["content-type"].startswith("text/event"))

    def _judge(self, behaviour: str, marker: int, body: bytes, marks: list[str], streamed: bool) -> None:
        texts: dict[Any, str] = defaultdict(str)
        verdicts: dict[Any, dict[str, Any]] = {}
        parts = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")] if streamed else [body]
        for part in parts:
            try:
                choices = json.loads(part).get("choices") or []
            except (ValueError, AttributeError):
                continue
            for choice in choices if isinstance(choices, list) else []:
                if isinstance(choice, dict):
                    text = str(choice.get("text") or "")
                    index = repr(choice.get("index"))
                    texts[index] += text
                    if text:
                        verdicts.pop(index, None)
                    if "anchorscope" in choice:
                        verdicts[index] = choice["anchorscope"]
        self.counts["answered"] += 1
        if len(marks) != 1:
            self.counts["NO MARK"] += 1
        others = set(map(int, re.findall(rb"ube(\d+)x", body))) - {marker}
        if others and behaviour != "flip":
            self._bad("CROSSED", behaviour, marker, others)
        for index, text in texts.items():
            verdict = verdicts.get(index)
            if verdict is None:
                marked = not streamed and marks == ["cannot say"]
                self.counts["cannot say (header)"] += marked
                if not marked:
                    self._bad("SILENT", behaviour, marker, text)
                continue
            self.counts[verdict["decision"]] += 1
            if verdict["decision"] != "cannot say":
                self._compare(behaviour, marker, text, verdict)

    def _compare(self, behaviour: str, marker: int, text: str, verdict: dict[str, Any]) -> None:
        """A verdict must be the one on this text. A bit that flipped inside a number or a text nobody can notice."""
        found = re.fullmatch(r" Danube(\d+)x(\d+)", text)
        right = found is not None and int(found[1]) == marker
        right = right and abs(verdict["score"] - self.score(marked_logprobs(marker, int(found[2])))) < 1e-6  # type: ignore[index]
        if behaviour == "flip":
            self.counts["flipped bit inside a value" if not right else "flipped bit elsewhere"] += 1
        elif not right:
            self._bad("CROSSED", behaviour, marker, text, verdict["score"])

    def _bad(self, what: str, *facts: Any) -> None:
        self.counts[what] += 1
        if len(self.odd) < 12:
            self.odd.append([what, *map(str, facts)])
