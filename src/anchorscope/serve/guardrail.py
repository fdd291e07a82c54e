"""A guardrail for a LiteLLM proxy that stands before `anchorscope serve`: it shows answers by their verdicts.

LiteLLM's streams lose the verdict: they drop the last chunk of an answer if it has no text, and all fields of text
completions. An answer is held back until its verdict is known in any case. So the guardrail asks the server for a whole
answer where the client wants a stream, and streams the answer once it is judged. Any other stream is blocked.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from typing import Any

from litellm.exceptions import GuardrailRaisedException
from litellm.integrations.custom_guardrail import CustomGuardrail
from litellm.types.guardrails import GuardrailEventHooks
from litellm.types.utils import (
    CallTypes,
    Choices,
    ModelResponse,
    ModelResponseStream,
    StreamingChoices,
    TextChoices,
    TextCompletionResponse,
)

from anchorscope.errors import AnchorscopeError
from anchorscope.serve.display import CANNOT_SAY, NO_VERDICT, DisplayPolicy, verdict_of
from anchorscope.serve.responses import FIELD

POST_CALL = GuardrailEventHooks.post_call
JUDGED_CALLS = (CallTypes.acompletion, CallTypes.atext_completion)


class WholeChunk(ModelResponseStream):  # type: ignore[misc]
    """A chunk with a whole answer."""


class StreamedChat(ModelResponse):  # type: ignore[misc]
    """A whole response to a client that wants a stream. For LiteLLM's log and costs it stays a whole response."""

    async def __aiter__(self) -> AsyncIterator[WholeChunk]:
        frame = {"id": self.id, "created": self.created, "model": self.model}
        for choice in self.choices:
            record = choice.model_dump()
            record["delta"] = record.pop("message")
            # without {}, LiteLLM writes nothing but the text of a chunk
            yield WholeChunk(**frame, choices=[record], provider_specific_fields={})
        yield WholeChunk(**frame, choices=[], usage=getattr(self, "usage", None))


class StreamedText(TextCompletionResponse):  # type: ignore[misc]
    """The same for a text completion, whose chunks have the form of whole responses."""

    async def __aiter__(self) -> AsyncIterator[StreamedText]:
        for choice in self.choices:
            yield self.model_copy(update={"choices": [choice]})


class AnchorscopeGuardrail(CustomGuardrail):  # type: ignore[misc]
    """Blocks, replaces or tags answers whose decision is not among those to be shown."""

    def __init__(
        self, show: Collection[str] = ("pass",), otherwise: str = "block", text: str = "", **host: Any
    ) -> None:
        """`host`: LiteLLM's own settings."""
        self.policy = DisplayPolicy(show, otherwise, *([text] if text else []))
        try:
            super().__init__(supported_event_hooks=[POST_CALL], **host)
        except (ValueError, TypeError) as error:  # for these two alone LiteLLM would start without the guardrail
            raise AnchorscopeError(str(error), "Write mode: post_call") from error

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: CallTypes | None
    ) -> dict[str, Any] | None:
        """Ask for a whole answer in place of a stream, and never the cache, which loses verdicts."""
        if call_type in JUDGED_CALLS and self._guards(kwargs):
            kwargs["cache"] = {"no-cache": True, "no-store": True}
            if kwargs.get("stream") is True:
                kwargs.pop("stream_options", None)
                kwargs["stream"] = False
        return kwargs

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: CallTypes | None
    ) -> Any:
        """Make the whole answer one that can be streamed. It is judged where it leaves the proxy, not here."""
        if "proxy_server_request" not in request_data:  # there is no proxy
            return await super().async_post_call_success_deployment_hook(request_data, response, call_type)
        asked = (request_data["proxy_server_request"] or {}).get("body") or {}
        if call_type in JUDGED_CALLS and asked.get("stream") is True and self._guards(request_data):
            streamed = {ModelResponse: StreamedChat, TextCompletionResponse: StreamedText}.get(type(response))
            if streamed is not None:
                response.__class__ = streamed
        return response

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> Any:
        """Judge a whole response. It is changed in place, so that a change cannot be discarded."""
        if not isinstance(response, (ModelResponse, TextCompletionResponse)):
            raise self._blocked(NO_VERDICT)
        self._judge(response)
        return response

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Judge a stream before any of it leaves."""
        chunks = []
        async for chunk in response:
            if not isinstance(chunk, (WholeChunk, StreamedText)):
                raise self._blocked(NO_VERDICT)
            self._judge(chunk)
            chunks.append(chunk)
        for chunk in chunks:
            yield chunk

    def _guards(self, request: dict[str, Any]) -> bool:
        """Whether the proxy will judge the answers to a request."""
        return "proxy_server_request" in request and self.should_run_guardrail(request, POST_CALL)

    def _judge(self, response: Any) -> None:
        for number, choice in enumerate(response.choices):
            verdict = verdict_of(choice.model_dump())
            if not self.policy.shows(verdict):
                if self.policy.otherwise == "block":
                    raise self._blocked(verdict or NO_VERDICT)
                if self.policy.otherwise == "replace":
                    response.choices[number] = self._replaced(choice)
            setattr(response.choices[number], FIELD, verdict or NO_VERDICT)

    def _replaced(self, choice: Any) -> Any:
        """A new choice, so that nothing of the old one is left."""
        kept, said = {"index": choice.index, "finish_reason": "content_filter"}, self.policy.text
        if isinstance(choice, TextChoices):
            return TextChoices(**kept, text=said)
        message = {"role": "assistant", "content": said}
        streamed = isinstance(choice, StreamingChoices)
        return StreamingChoices(**kept, delta=message) if streamed else Choices(**kept, message=message)

    def _blocked(self, verdict: dict[str, Any]) -> GuardrailRaisedException:
        why = f" ({verdict['code']})" if verdict["decision"] == CANNOT_SAY and verdict.get("code") else ""
        message = f"The answer is not shown. The decision on it is: {verdict['decision']}{why}"
        return GuardrailRaisedException(self.guardrail_name, message, should_wrap_with_default_message=False)
