"""The middleware of vLLM's own server: `--middleware anchorscope.serve.middleware.Verdicts`, or `Words` for words.

Before the server takes requests, it answers known questions or requests, and what is said of its answers is compared
with what was said at fitting. If they do not agree, the server does not start.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from anchorscope.errors import AnchorscopeError, DetectorError
from anchorscope.serve.adapter import OFF
from anchorscope.serve.config import KEY, ServeConfig
from anchorscope.serve.decoding import other_decoding
from anchorscope.serve.departure import Message, Send
from anchorscope.serve.desk import Desk
from anchorscope.serve.endpoint import compare
from anchorscope.serve.intercept import App, Intercepted, Receive, Scope
from anchorscope.serve.judge import LiveJudge
from anchorscope.serve.live_desk import LiveDesk
from anchorscope.serve.lora import Adapter, check_settled
from anchorscope.serve.parity import EngineAnswer, gate
from anchorscope.serve.plan import Column, plan_of
from anchorscope.serve.wire import RowBook, listen
from anchorscope.serve.word_desk import word_desk

log = logging.getLogger("vllm.anchorscope")


class _Middleware:
    """ASGI application around vLLM's server. A subclass makes what judges its answers."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.inside: Intercepted | None = None
        self.desk: Desk | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or the server's start, which ends when the detectors are ready."""
        if scope["type"] == "lifespan":

            async def started(message: Message) -> None:
                if message["type"] == "lifespan.startup.complete":
                    try:
                        await self._start(scope["app"])
                    except AnchorscopeError as error:
                        log.error("anchorscope: %s", error)
                        message = {"type": "lifespan.startup.failed", "message": f"anchorscope: {error}"}
                if message["type"] == "lifespan.shutdown.complete" and self.desk is not None:
                    self.desk.close()
                await send(message)

            return await self.app(scope, receive, started)
        if self.inside is None:  # nothing is answered before the detectors are ready
            raise RuntimeError("anchorscope: a request came before the start of the server")
        return await self.inside(scope, receive, send)

    async def _start(self, server: Any) -> None:
        """Set `inside` and `desk`. `server`: vLLM's application, whose state has the engine."""
        raise NotImplementedError


class Verdicts(_Middleware):
    """Adds a verdict to every answer, from what the workers send and from log-probabilities."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self._tasks: list[asyncio.Task[None]] = []

    async def _start(self, server: Any) -> None:
        state = server.state
        vllm = state.vllm_config
        config = _config_of(vllm)
        from transformers import AutoTokenizer

        path, revision = vllm.model_config.tokenizer, vllm.model_config.tokenizer_revision
        tokenizer = AutoTokenizer.from_pretrained(path, revision=revision, trust_remote_code=False)
        loras = state.openai_serving_models.lora_requests
        if vllm.lora_config is not None:
            check_settled(loras, os.environ)
        adapters = {name: Adapter.of(loras, adapter) for name, adapter in config.adapters.items()}
        judges = {
            name: LiveJudge.load(name, detector, tokenizer, adapters.get(name))
            for name, detector in config.detectors.items()
        }
        for judge in judges.values():
            _compare_prompts(judge)
        plan = plan_of({name: judge.detector for name, judge in judges.items()})
        longest = max(judge.detector.moments.tokens for judge in judges.values())
        book = RowBook(plan.fingerprint, vllm.parallel_config.pipeline_parallel_size, min(longest, 4096) + 8)
        self._tasks.append(asyncio.create_task(listen(book, config.socket)))
        names = [model.name for model in state.openai_serving_models.base_model_paths]
        defaults = vllm.model_config.get_diff_sampling_param()
        desk = LiveDesk(judges, config.detectors, book, config.counts(), names, defaults)
        for name, judge in judges.items():
            if why := other_decoding({}, judge.detector.card.decoding, defaults):
                log.warning("anchorscope: %s cannot judge a request that does not state its decoding: %s", name, why)
        for name, judge in judges.items():
            lora = judge.adapter.request if judge.adapter else None
            engine = GateEngine(state.engine_client, desk.logprobs, lora)
            dtype = str(vllm.model_config.dtype).removeprefix("torch.")
            parity = await gate(judge, engine, book, desk.columns, dtype)
            others = [each for each in (None, *loras.values()) if each is not lora]
            if others:
                await self._gate_beside(parity.judge, replace(engine, beside=others), book, desk.columns, dtype)
            desk.judges[name] = parity.judge
            desk.parity[name] = parity.record()
            log.info("anchorscope: %s is ready: %s", name, parity)
        self.inside, self.desk = Intercepted(self.app, desk, config.admission), desk

    async def _gate_beside(
        self, judge: LiveJudge, engine: GateEngine, book: RowBook, columns: Sequence[Column], dtype: str
    ) -> None:
        """Refuse an engine that answers otherwise while the model or another adapter answers in the same batch."""
        try:
            await gate(judge, engine, book, columns, dtype)
        except DetectorError as error:
            raise DetectorError(
                f"the answers that {judge.name} judges change while an adapter, or the model without one, answers at "
                f"the same time ({error.message})",
                "Serve them on servers of their own. vLLM 0.32 for CPUs mixes them up, whether or not it judges.",
            ) from error


class Words(_Middleware):
    """Judges the words of every response by their log-probabilities. It needs nothing of the workers."""

    async def _start(self, server: Any) -> None:
        import httpx

        state = server.state
        config = _config_of(state.vllm_config)
        desk = word_desk(config)

        async def inner(scope: Scope, receive: Receive, send: Send) -> None:
            await self.app({**scope, "app": server}, receive, send)

        keys = [*(state.args.api_key or []), *filter(None, [os.environ.get("VLLM_API_KEY")])]
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {keys[0]}"} if keys else {})}
        names = [model.name for model in state.openai_serving_models.base_model_paths]
        transport = httpx.ASGITransport(inner)
        async with httpx.AsyncClient(transport=transport, base_url="http://vllm", timeout=None) as client:  # noqa: S113

            async def ask(method: str, path: str, body: bytes) -> httpx.Response:
                return await client.request(method, path, content=body, headers=headers)

            log.info("anchorscope: %s", await compare(desk, ask, names))
        self.inside, self.desk = Intercepted(self.app, desk, config.admission), desk


def _config_of(vllm: Any) -> ServeConfig:
    """The configuration of anchorscope in that of vLLM, whose log-probabilities must be the model's own."""
    mode = str(getattr(vllm.model_config, "logprobs_mode", "raw_logprobs"))
    if not mode.endswith("raw_logprobs"):
        raise DetectorError(
            f"the server was started with --logprobs-mode {mode}, and detectors know raw_logprobs",
            "Leave --logprobs-mode out.",
        )
    return ServeConfig.of(vllm.additional_config)


def _compare_prompts(judge: LiveJudge) -> None:
    """Warn if the server makes other prompts of requests than those of the fit, and say what requests must send."""
    spec = judge.prompter.spec
    if spec.style != "chat":
        prompt = judge.prompter("Who?")
        if judge.tokenizer(prompt.text).input_ids != prompt.ids:
            log.warning(
                "anchorscope: prompts that are sent as text begin with other tokens here than those that %s was fitted "
                "with, probably without a BOS, so their verdicts will be cannot say. Send prompts as token ids, or "
                "write the BOS in front.",
                judge.name,
            )
        return
    text = judge.tokenizer.apply_chat_template(
        judge.prompter.turns("Who?"), add_generation_prompt=True, tokenize=False, **spec.chat_kwargs
    )
    if text != judge.prompter("Who?").text:
        log.warning(
            "anchorscope: the chat template writes other prompts than those that %s was fitted with, so most verdicts "
            "will be cannot say. If it writes today's date, send the date of the fit in chat_template_kwargs.",
            judge.name,
        )
    elif spec.chat_kwargs:
        arguments = json.dumps(spec.chat_kwargs)
        log.info(
            "anchorscope: %s was fitted with chat_template_kwargs %s. Send them with every request, or start the "
            "server with --default-chat-template-kwargs '%s'. Other requests get the verdict cannot say.",
            *(judge.name, arguments, arguments),
        )


@dataclass(frozen=True)
class GateEngine:
    """Asks vLLM's engine the known questions of the parity gate."""

    client: Any
    logprobs: bool
    lora: Any = None
    """vLLM's request of the adapter that is asked, instead of the model itself."""
    beside: Sequence[Any] = ()
    """Others that are asked the same at the same time: adapters, or None for the model itself."""

    async def answer(self, request: str, ids: list[int], most: int, stops: list[int]) -> EngineAnswer:
        """Generate one greedy answer. `request` is the id under which its rows will arrive."""
        from vllm import SamplingParams

        logprobs = 0 if self.logprobs else None
        sampling = SamplingParams(temperature=0.0, max_tokens=most, stop_token_ids=stops, logprobs=logprobs)
        unheard = SamplingParams(temperature=0.0, max_tokens=most, stop_token_ids=stops, extra_args={KEY: OFF})
        last, *_ = await asyncio.gather(
            self._last(ids, sampling, f"cmpl-{request}-0", self.lora),
            *(self._last(ids, unheard, f"cmpl-{uuid.uuid4().hex}-0", other) for other in self.beside),
        )
        given = list(last.token_ids)
        made = [step[token].logprob for step, token in zip(last.logprobs or [], given, strict=False)]
        return EngineAnswer(given, made, last.finish_reason == "stop")

    async def _last(self, ids: list[int], sampling: Any, name: str, lora: Any) -> Any:
        """The finished answer."""
        last = None
        async for output in self.client.generate({"prompt_token_ids": ids}, sampling, name, lora_request=lora):
            last = output.outputs[0]
        assert last is not None
        return last
