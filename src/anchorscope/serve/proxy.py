"""A proxy that adds verdicts to the answers of any OpenAI-compatible endpoint with log-probabilities.

It serves detectors that read nothing but log-probabilities, such as `confidence`. The response is the same as that of a
vLLM server with the middleware. The proxy tokenizes the prompt with the model's tokenizer, to check that it is the
detector's prompt.
"""

from __future__ import annotations

import logging
from typing import Any

from anchorscope.detectors.reader import SEVERAL_LINES, unreadable
from anchorscope.errors import AnchorscopeError, DetectorError
from anchorscope.questions.record import Question
from anchorscope.serve.counts import Counts
from anchorscope.serve.desk import Desk
from anchorscope.serve.intercept import App, Intercepted, Message, Receive, Scope, Send
from anchorscope.serve.judge import NOT_READ, OTHER_PROMPT, OTHER_TEXT, LiveJudge, ReadAnswer
from anchorscope.serve.parity import at_fitting, weighed
from anchorscope.serve.responses import AnswerChoice, ApiRequest

log = logging.getLogger("vllm.anchorscope")
RENDERED = ("tools", "functions", "documents", "chat_template", "chat_template_kwargs", "continue_final_message",
            "add_generation_prompt", "response_format")  # fmt: skip
"""Fields of a chat request that may make the endpoint's prompt differ from the proxy's."""
HOP = {b"host", b"connection", b"transfer-encoding", b"keep-alive", b"upgrade"}  # headers between two hosts alone


class TextDesk(Desk):
    """Judges answers by their log-probabilities."""

    ids, logprobs = False, True

    def __init__(self, judge: LiveJudge, counts: Counts) -> None:
        if judge.states:
            raise DetectorError(
                f"the detector {judge.name} reads hidden states, which an endpoint does not return",
                "Serve the model with vLLM (leave --endpoint out), or fit the detector confidence.",
            )
        super().__init__(counts)
        self.judge = judge
        self.model: str | None = None
        """The name that the endpoint gives the model, once it is known."""

    async def verdict(self, asked: ApiRequest, request: str, index: int, choice: AnswerChoice) -> dict[str, Any]:
        """The verdict on one choice."""
        return await self.told(self.judge, request, lambda: self.read(asked, index // asked.answers, choice))

    def read(self, asked: ApiRequest, prompt: int, choice: AnswerChoice) -> ReadAnswer:
        """Find the answer and the log-probabilities of its tokens."""
        if why := asked.why_not or choice.why_not or self._why_not(asked):
            return ReadAnswer(why)
        found = self.judge.prompter.read_back(self.prompt_ids(asked, prompt))
        if found is None:
            return ReadAnswer(OTHER_PROMPT)
        question, context, laid = found
        text = choice.text.strip()
        if "\n" in text:
            return ReadAnswer(SEVERAL_LINES)
        tokens = self._answer_tokens(choice, text)
        if choice.finish != "stop":
            return ReadAnswer(NOT_READ)
        if tokens is None:
            return ReadAnswer(OTHER_TEXT)
        logprobs = choice.logprobs[:tokens]
        if not logprobs or any(value is None for value in logprobs):
            return ReadAnswer("its log-probabilities did not arrive")
        sample = self.judge.maker(Question.asked(question, [], context), text, None, logprobs, laid)
        return ReadAnswer(unreadable(sample), sample)

    @staticmethod
    def _answer_tokens(choice: AnswerChoice, text: str) -> int | None:
        """How many tokens make up the text: those behind it, such as an end of the text, are not the answer's."""
        whole = ""
        found = None
        for number, token in enumerate(choice.tokens, 1):
            whole += token
            if whole.strip() == text and "\n" not in token:
                found = number
                if len(whole.rstrip()) == len(whole):
                    break
        return found

    def _why_not(self, asked: ApiRequest) -> str:
        if why := asked.of_another([self.model] if self.model is not None else []):
            return why
        other = [name for name in RENDERED if asked.data.get(name) not in (None, [], {}, "")]
        return f"{OTHER_PROMPT}: {', '.join(other)}" if other else ""

    def prompt_ids(self, asked: ApiRequest, number: int) -> list[int]:
        """The tokens of a prompt, as the model's tokenizer has them; empty where there are none."""
        tokenizer = self.judge.tokenizer
        if asked.chat:
            made = tokenizer.apply_chat_template(asked.data["messages"], add_generation_prompt=True, tokenize=False)
            return list(tokenizer(made, add_special_tokens=False).input_ids)
        prompts = asked.data.get("prompt")
        if isinstance(prompts, str):
            prompts = [prompts]
        if not isinstance(prompts, list) or not prompts:
            return []
        if isinstance(prompts[0], int):
            return [int(token) for token in prompts]
        prompt = prompts[number] if number < len(prompts) else ""
        ids = tokenizer(prompt, add_special_tokens=False).input_ids if isinstance(prompt, str) else prompt
        bos = self.judge.prompter.shared_ids[:1]
        wants = bos == [tokenizer.bos_token_id] and list(ids[:1]) != bos
        return [*bos, *ids] if wants else list(ids)

    def status(self) -> dict[str, Any]:
        """The detector, and counts."""
        return self.about({self.judge.name: self.judge})


class Forwarder:
    """An ASGI app that forwards every request to another server."""

    def __init__(self, endpoint: str, timeout: float = 600.0) -> None:
        import httpx

        self.client = httpx.AsyncClient(base_url=endpoint.rstrip("/").removesuffix("/v1"), timeout=timeout)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        import httpx

        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                break
        if not scope["path"].startswith("/"):  # an absolute address would lead elsewhere
            await send({"type": "http.response.start", "status": 400, "headers": []})
            return await send({"type": "http.response.body", "body": b"", "more_body": False})
        query = scope.get("query_string", b"").decode()
        url = scope["path"] + (f"?{query}" if query else "")
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in HOP]
        headers = [(name, value) for name, value in headers if name.lower() != b"content-length"]
        try:
            asked = self.client.build_request(scope["method"], url, headers=headers, content=body)
            response = await self.client.send(asked, stream=True)
        except httpx.HTTPError as error:
            told = b'{"error":{"message":"the endpoint did not respond: %s"}}' % type(error).__name__.encode()
            await send(
                {"type": "http.response.start", "status": 502, "headers": [(b"content-type", b"application/json")]}
            )
            await send({"type": "http.response.body", "body": told, "more_body": False})
            return
        dropped = HOP | {b"content-length", b"content-encoding"}
        kept = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in dropped]
        try:
            await send({"type": "http.response.start", "status": response.status_code, "headers": kept})
            async for part in response.aiter_bytes():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await response.aclose()


class Proxy:
    """The whole proxy. It compares the endpoint with the detector's known answers, then forwards and judges."""

    def __init__(self, endpoint: str, desk: TextDesk, key: str | None = None) -> None:
        self.forward = Forwarder(endpoint)
        self.desk, self.key = desk, key
        self.inside: App = Intercepted(self.forward, desk)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, or the start."""
        if scope["type"] != "lifespan":
            return await self.inside(scope, receive, send)
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send(await self._started())
            elif message["type"] == "lifespan.shutdown":
                await self.forward.client.aclose()
                self.desk.close()
                return await send({"type": "lifespan.shutdown.complete"})

    async def _started(self) -> Message:
        try:
            await self.compare()
        except AnchorscopeError as error:
            log.error("anchorscope: %s", error)
            return {"type": "lifespan.startup.failed", "message": f"anchorscope: {error}"}
        return {"type": "lifespan.startup.complete"}

    async def compare(self) -> None:
        """Ask the known questions, and refuse an endpoint whose scores differ."""
        import httpx
        import numpy as np

        judge, client = self.desk.judge, self.forward.client
        known = judge.detector.known_answers
        if not known:
            raise DetectorError(
                f"the detector {judge.name} has no known answers, so an endpoint cannot be compared with it",
                "Fit it again with this version: anchorscope detect fit",
            )
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        before, now = [], []
        try:
            listed = await client.get("/v1/models", headers=headers)
            model = self.desk.model = str(listed.json()["data"][0]["id"])
            for answer in known:
                asked = self._known(answer.question, model)
                path = "/v1/chat/completions" if asked.chat else "/v1/completions"
                made = (await client.post(path, json=asked.with_more(False, True), headers=headers)).json()
                choice = AnswerChoice()
                asked.take(made, made["choices"][0], choice, True)
                read = self.desk.read(asked, 0, choice)
                same = read.sample is not None and list(read.sample.answer.answer_ids) == list(answer.ids)
                if same and not read.reason and read.sample is not None:
                    before.append(at_fitting(judge, answer))
                    now.append(judge.score(read.sample, None))
        except (httpx.HTTPError, KeyError, IndexError, ValueError) as error:
            raise DetectorError(
                f"the endpoint did not answer the known questions ({type(error).__name__})",
                "Check the URL, and that the endpoint returns logprobs.",
            ) from None
        passed = weighed(judge, np.array(before), np.array(now), len(known), str(judge.detector.about.model["dtype"]))
        self.desk.judge, self.desk.parity = passed.judge, {judge.name: passed.record()}
        log.info("anchorscope: %s is ready: %s", judge.name, passed)

    def _known(self, question: str, model: str) -> ApiRequest:
        """A known question as a request of a client."""
        data = {**self.desk.judge.detector.request(question), "model": model}
        return ApiRequest(data, "messages" in data)


def serve_proxy(app: Any, host: str, port: int) -> None:
    """Run the proxy until it is stopped."""
    import uvicorn

    uvicorn.run(app, host=host, port=port, log_level="warning", lifespan="on")
