"""Judging an endpoint by what it returns, once its answers to known requests were compared with those at fitting."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from anchorscope.detectors.reasons import CANNOT_BE_JUDGED, OTHER_MODEL, SUSPENDED
from anchorscope.errors import DetectorError
from anchorscope.serve.counts import Counts
from anchorscope.serve.desk import Desk
from anchorscope.serve.responses import AnswerChoice, ApiRequest

if TYPE_CHECKING:
    import httpx

Model: TypeAlias = tuple[str | None, str | None]
"""Name of a model, and fingerprint of the system that it runs on."""
Ask: TypeAlias = "Callable[[str, str, bytes], Awaitable[httpx.Response]]"
"""Sends a request, by method, path and body."""
SAME = 0.1  # by which the log-probability of a token may differ between two requests


class EndpointDesk(Desk):
    """Judges what an endpoint answers by its log-probabilities, once its known answers were compared."""

    ids, logprobs = False, True
    any_temperature = False
    """Whether responses are judged that were sampled at any temperature."""

    def __init__(self, name: str, counts: Counts) -> None:
        super().__init__(counts)
        self.name = name
        self.models: set[Model] = set()
        """Names of the model and fingerprints of the system in the endpoint's known answers."""
        self.suspended = True
        """Whether nothing is judged, because the endpoint does not agree with the known answers, or may not."""
        self.doubted = False
        """Whether the endpoint should be compared with the known answers again."""

    @abstractmethod
    def known(self, model: str) -> list[ApiRequest]:
        """The requests whose answers are known, for the model under this name."""

    @abstractmethod
    def agree(self, answers: Sequence[tuple[ApiRequest, AnswerChoice]]) -> str:
        """How far answers to all known requests, name by name, agree with what is known. Too little is an error."""

    def unlike_known(self, api_request: ApiRequest, choice: AnswerChoice) -> str:
        """Why what is known does not hold for a choice; empty where it does."""
        if self.suspended:
            return SUSPENDED
        if not self._is_known(choice):
            self.doubted = True  # a new fingerprint may be the same model
            return OTHER_MODEL
        if api_request.data.get("stream") and api_request.answers > 1 and api_request.prompts > 1:
            # an endpoint that ignores n would number its answers otherwise, and only the end of the stream would tell
            return f"{CANNOT_BE_JUDGED}: several answers to several prompts in one stream"
        return ""

    def _is_known(self, choice: AnswerChoice) -> bool:
        """Whether a choice came from the model that gave the known answers.

        Some servers name the system in the last part of a stream alone, so it may be missing until a choice ends.
        """
        told = {model for model in choice.models if model[1] is not None}
        named = {name for name, _ in choice.models} <= {name for name, _ in self.models}
        complete = choice.finish is None or bool(told) or choice.models <= self.models
        return named and complete and told <= self.models


async def compare(desk: EndpointDesk, ask: Ask, names: Sequence[str] = ()) -> str:
    """Send the known requests, and refuse an endpoint whose answers differ from what is known.

    `names`: of the model there (default: the first name in /v1/models).
    """
    import httpx

    answers = []
    try:
        listed = await ask("GET", "/v1/models", b"")
        listed.raise_for_status()
        for name in names or [str(listed.json()["data"][0]["id"])]:
            for api_request in desk.known(name):
                path = "/v1/chat/completions" if api_request.chat else "/v1/completions"
                response = await ask("POST", path, json.dumps(api_request.with_more(False, True)).encode())
                response.raise_for_status()
                reply, choice = response.json(), AnswerChoice()
                api_request.take(reply, reply["choices"][0], choice)
                answers.append((api_request, choice))
        if desk.any_temperature:
            await _check_temperature(ask, answers)
    except (httpx.HTTPError, KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise DetectorError(
            f"the endpoint did not answer the known requests ({type(error).__name__}: {error})",
            "Check the URL and the key (OPENAI_API_KEY), and that the endpoint returns logprobs.",
        ) from None
    said = desk.agree(answers)
    desk.models, desk.suspended = set[Model]().union(*(choice.models for _, choice in answers)), False
    return said


async def _check_temperature(ask: Ask, answers: Sequence[tuple[ApiRequest, AnswerChoice]]) -> None:
    """Refuse an endpoint whose log-probabilities are those after temperature: no detector was fitted on them.

    The likeliest first token must have the same log-probability at temperature 2 as in the greedy answer.
    """
    told = [(choice.logprobs[0], api_request) for api_request, choice in answers if choice.logprobs]
    if not told:
        return
    greedy, asked = min(told, key=lambda pair: pair[0])  # where the model is least sure, a temperature shows most
    # some servers count the sampled token among the likeliest: ask for two
    more = {"logprobs": True, "top_logprobs": 2} if asked.chat else {"logprobs": 2}
    body = json.dumps({**asked.data, **more, "temperature": 2.0, "max_tokens": 1}).encode()
    response = await ask("POST", "/v1/chat/completions" if asked.chat else "/v1/completions", body)
    response.raise_for_status()
    logprobs = response.json()["choices"][0]["logprobs"]
    if asked.chat:
        warm = [float(each["logprob"]) for each in logprobs["content"][0]["top_logprobs"]]
    else:
        warm = list(map(float, logprobs["top_logprobs"][0].values()))
    if not abs(max(warm) - greedy) <= SAME:  # also what is not a number
        raise DetectorError(
            f"the endpoint's log-probabilities change with the temperature (from {greedy:.2f} to {max(warm):.2f})",
            "Let it return those of the model itself. In vLLM: leave --logprobs-mode out.",
        )
