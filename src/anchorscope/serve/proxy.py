"""A proxy that adds verdicts to the answers of any OpenAI-compatible endpoint with log-probabilities.

It serves detectors that read nothing but log-probabilities, such as `confidence`. The response is the same as that of a
vLLM server with the middleware. The proxy tokenizes the prompt with the model's tokenizer, to check that it is the
detector's prompt.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorscope.detectors.reader import SEVERAL_LINES, unreadable
from anchorscope.detectors.reasons import (
    LONG_PROMPT,
    NO_LOGPROBS,
    NOT_READ,
    OTHER_PROMPT,
    OTHER_TEXT,
)
from anchorscope.errors import AnchorscopeError, DetectorError
from anchorscope.questions.record import Question
from anchorscope.serve.counts import Counts
from anchorscope.serve.decoding import other_decoding
from anchorscope.serve.departure import Message, RefusedRequestError, Send
from anchorscope.serve.endpoint import EndpointDesk, compare
from anchorscope.serve.forward import EndpointLimits, Forwarder
from anchorscope.serve.intercept import Admission, App, Intercepted, Receive, Scope, path_of
from anchorscope.serve.judge import LiveJudge, ReadAnswer
from anchorscope.serve.parity import at_fitting, compare_scores
from anchorscope.serve.responses import AnswerChoice, ApiRequest

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("vllm.anchorscope")
RENDERED = ("tools", "functions", "documents", "chat_template", "chat_template_kwargs", "continue_final_message",
            "add_generation_prompt", "response_format")  # fmt: skip
"""Fields of a chat request that may make the endpoint's prompt differ from the proxy's."""
MOST_PER_TOKEN = 64  # characters of a prompt for each of the tokens that it may have
PAUSE, SUSPENDED_PAUSE = 60.0, 5.0  # seconds between two comparisons with the known answers, at least


class TextDesk(EndpointDesk):
    """Judges answers by their log-probabilities."""

    def __init__(self, judge: LiveJudge, counts: Counts) -> None:
        if judge.states:
            raise DetectorError(
                f"the detector {judge.name} reads hidden states, which an endpoint does not return",
                "Serve the model with vLLM (leave --endpoint out), or fit the detector confidence.",
            )
        if not judge.detector.known_answers:
            raise DetectorError(
                f"the detector {judge.name} has no known answers, so an endpoint cannot be compared with it",
                "Fit it again with this version: anchorscope detect fit",
            )
        super().__init__(judge.name, counts)
        self.judge = self._fitted = judge

    def known(self, model: str) -> list[ApiRequest]:
        """The known questions as requests of a client."""
        detector = self._fitted.detector
        requests = [detector.request(answer.question) for answer in detector.known_answers]
        return [ApiRequest({**data, "temperature": 0, "model": model}, "messages" in data) for data in requests]

    def agree(self, answers: Sequence[tuple[ApiRequest, AnswerChoice]]) -> str:
        """Compare scores with those at fitting, and take the offset of the endpoint's."""
        judge, before, now, why = self._fitted, list[float](), list[float](), set[str]()
        for (api_request, choice), known in zip(answers, cycle(judge.detector.known_answers)):
            read = ReadAnswer(choice.why_not) if choice.why_not else self.find(api_request, 0, choice)
            why.add(read.reason)
            if read.sample is not None and not read.reason and list(read.sample.answer.answer_ids) == list(known.ids):
                before.append(at_fitting(judge, known))
                now.append(judge.score(read.sample, None))
        if not before and NO_LOGPROBS in why:
            raise DetectorError(NO_LOGPROBS, "Choose an endpoint that returns logprobs, or serve the model with vLLM.")
        dtype = str(judge.detector.about.model["dtype"])
        parity = compare_scores(judge, np.array(before), np.array(now), len(answers), dtype)
        self.judge, self.parity = parity.judge, {judge.name: parity.record()}
        return f"{judge.name} is ready: {parity}"

    async def verdict(self, api_request: ApiRequest, request: str, index: int, choice: AnswerChoice) -> dict[str, Any]:
        """The verdict on one choice."""
        return await self.judge_with(
            self.judge, request, lambda: self.read(api_request, index // api_request.answers, choice)
        )

    def read(self, api_request: ApiRequest, prompt: int, choice: AnswerChoice) -> ReadAnswer:
        """Find the answer and the log-probabilities of its tokens."""
        if why := api_request.why_not or choice.why_not or self._why_not(api_request, choice):
            return ReadAnswer(why)
        if why := other_decoding(api_request.data, self.judge.detector.card.decoding, {}):
            return ReadAnswer(why)
        return self.find(api_request, prompt, choice)

    def find(self, api_request: ApiRequest, prompt: int, choice: AnswerChoice) -> ReadAnswer:
        """Find the answer, whoever gave it."""
        characters = _characters(api_request.data.get("messages" if api_request.chat else "prompt"))
        if characters > MOST_PER_TOKEN * self.judge.detector.moments.longest_prompt:
            return ReadAnswer(f"{LONG_PROMPT}: {characters} characters")
        parts = self.judge.prompter.read_back(self.prompt_ids(api_request, prompt))
        if parts is None:
            return ReadAnswer(OTHER_PROMPT)
        question, context, prompt_parts = parts
        text = choice.text.strip()
        if "\n" in text:
            return ReadAnswer(SEVERAL_LINES)
        if choice.finish != "stop":
            return ReadAnswer(NOT_READ)
        if text and not choice.tokens:
            return ReadAnswer(NO_LOGPROBS)
        tokens = self._answer_tokens(choice, text)
        if tokens is None:
            return ReadAnswer(OTHER_TEXT)
        sample = self.judge.maker(
            Question.asked(question, [], context), text, None, choice.logprobs[:tokens], prompt_parts
        )
        return ReadAnswer(unreadable(sample, self.judge.detector.moments), sample)

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

    def _why_not(self, api_request: ApiRequest, choice: AnswerChoice) -> str:
        if why := self.unlike_known(api_request, choice):
            return why
        other = [name for name in RENDERED if api_request.data.get(name) not in (None, [], {}, "")]
        return f"{OTHER_PROMPT}: {', '.join(other)}" if other else ""

    def prompt_ids(self, api_request: ApiRequest, number: int) -> list[int]:
        """The tokens of a prompt, as the model's tokenizer has them, made once per request."""
        if number not in api_request.prompt_ids:
            api_request.prompt_ids[number] = self._prompt_ids(api_request, number)
        return api_request.prompt_ids[number]

    def _prompt_ids(self, api_request: ApiRequest, number: int) -> list[int]:
        tokenizer = self.judge.tokenizer
        if api_request.chat:
            messages = api_request.data.get("messages")
            if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
                return []
            text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            return list(tokenizer(text, add_special_tokens=False).input_ids)
        prompts = api_request.data.get("prompt")
        if isinstance(prompts, str):
            prompts = [prompts]
        if not isinstance(prompts, list) or not prompts:
            return []
        if isinstance(prompts[0], int):
            return prompts if all(type(token) is int for token in prompts) else []
        prompt = prompts[number] if number < len(prompts) else ""
        ids = tokenizer(prompt, add_special_tokens=False).input_ids if isinstance(prompt, str) else prompt
        bos = self.judge.prompter.shared_ids[:1]
        wants = bos == [tokenizer.bos_token_id] and list(ids[:1]) != bos
        return [*bos, *ids] if wants else list(ids)

    def status(self) -> dict[str, Any]:
        """The detector, whether it judges, and counts."""
        return {**self.about({self.judge.name: self.judge}), "suspended": self.suspended}


def _characters(prompt: Any) -> int:
    """The length of a prompt or of the messages of a chat."""
    if isinstance(prompt, str):
        return len(prompt)
    if isinstance(prompt, dict):
        return sum(map(_characters, prompt.values()))
    return sum(map(_characters, prompt)) if isinstance(prompt, list) else 1


class Proxy:
    """The whole proxy. It compares the endpoint with the detector's known answers, then forwards and judges."""

    def __init__(
        self,
        endpoint: str,
        desk: EndpointDesk,
        key: str | None = None,
        *,
        limits: EndpointLimits | None = None,
        admission: Admission | None = None,
        names: Sequence[str] = (),
        minutes: float = 10.0,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """`key`: for the endpoint; `names`: of the model there; `minutes`: until the endpoint is compared again."""
        admission = admission or Admission()
        # a client that sends the proxy's key has none for the endpoint
        self.forward = Forwarder(endpoint, limits, key if admission.api_key is not None else None, self._failed)
        self.desk, self.key, self.names, self.minutes, self.ready = desk, key, list(names), minutes, ready
        self.inside: App = Intercepted(self._endpoint, desk, admission)
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, or the start."""
        if scope["type"] != "lifespan":
            return await self.inside(scope, receive, send)
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send(await self._started())
            elif message["type"] == "lifespan.shutdown":
                if self._task is not None:
                    self._task.cancel()
                await self.forward.client.aclose()
                self.desk.close()
                return await send({"type": "lifespan.shutdown.complete"})

    async def _endpoint(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The endpoint; but the metrics are the proxy's own."""
        if path_of(scope) != "/metrics":
            return await self.forward(scope, receive, send)
        try:
            from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
        except ImportError:
            raise RefusedRequestError(501, "metrics need: pip install 'anchorscope[proxy]'") from None
        headers = [(b"content-type", CONTENT_TYPE_LATEST.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": generate_latest(), "more_body": False})

    async def _started(self) -> Message:
        try:
            await self.compare()
        except AnchorscopeError as error:
            log.error("anchorscope: %s", error)
            return {"type": "lifespan.startup.failed", "message": f"anchorscope: {error}"}
        self._task = asyncio.create_task(self._compare_again())
        self.ready()
        return {"type": "lifespan.startup.complete"}

    def _failed(self, unreachable: bool) -> None:
        """Compare again after a failure, since another model may answer then.

        An endpoint that could not be reached may have been restarted: nothing is judged before it was compared.
        """
        self.desk.suspended = self.desk.suspended or unreachable
        self.desk.doubted = True

    async def _compare_again(self) -> None:
        """Compare every few minutes, and soon when there is doubt."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(1.0)
            waited = time.monotonic() - last
            if waited < (SUSPENDED_PAUSE if self.desk.suspended else PAUSE) or not (
                self.desk.doubted or waited > 60 * self.minutes
            ):
                continue
            self.desk.doubted = False
            try:
                await self.compare()
            except Exception:
                self.desk.suspended = self.desk.doubted = True
                log.exception("anchorscope: every verdict is cannot say, because the endpoint does not agree")
            last = time.monotonic()

    async def compare(self) -> None:
        """Send the known requests, and refuse an endpoint whose answers differ from what is known."""
        headers = [(b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
        headers += [(b"authorization", f"Bearer {self.key}".encode())] if self.key else []

        async def ask(method: str, path: str, body: bytes) -> httpx.Response:
            return await self.forward.send(self.forward.request(method, path, headers, content=body))

        log.info("anchorscope: %s", await compare(self.desk, ask, self.names))


def serve_proxy(app: Any, host: str, port: int) -> None:
    """Run the proxy until it is stopped."""
    import uvicorn

    uvicorn.run(app, host=host, port=port, log_level="warning", lifespan="on", http="h11")
