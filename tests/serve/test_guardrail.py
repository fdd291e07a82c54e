"""Which answers the guardrail shows, and what LiteLLM's clients get of the others."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import litellm_interface
from anchorscope.detectors.reasons import CODES
from anchorscope.errors import AnchorscopeError
from anchorscope.serve.display import ACTIONS, NO_VERDICT, DisplayPolicy, verdict_of
from anchorscope.serve.responses import WORST

with litellm_interface.offered():
    from litellm.exceptions import GuardrailRaisedException
    from litellm.types.utils import CallTypes, ModelResponse, ModelResponseStream, TextCompletionResponse

    from anchorscope.serve.guardrail import AnchorscopeGuardrail, StreamedChat, StreamedText

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydantic.*")  # of LiteLLM's own types
PASS, FLAG = ({"decision": decision, "reason": "", "code": "", "p_wrong": 0.5} for decision in ("pass", "flag"))
UNFLAGGED = {"decision": "cannot say", "reason": "no word is flagged", "code": "no_flag"}
SECRET = "Danube"
ASKED = {"proxy_server_request": {"body": {"stream": True}}, "metadata": {}}


# --- which answers are shown


def test_only_pass_is_shown_unless_more_is_listed():
    assert [decision for decision in WORST if DisplayPolicy().shows({"decision": decision, "code": ""})] == ["pass"]
    assert DisplayPolicy(["pass", "doubtful"]).shows({"decision": "doubtful"})
    assert not DisplayPolicy([]).shows(PASS)


def test_responses_without_a_flag_are_shown_only_for_the_code():
    assert not DisplayPolicy().shows(UNFLAGGED)
    assert DisplayPolicy(["no_flag"]).shows(UNFLAGGED)
    assert not DisplayPolicy(["no_flag"]).shows({**UNFLAGGED, "code": "no_words"})
    assert not DisplayPolicy(["no_flag"]).shows({**FLAG, "code": "no_flag"})  # a code counts with cannot say alone


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"anchorscope": None},
        {"anchorscope": "pass"},
        {"anchorscope": {}},
        {"anchorscope": {"decision": "Pass"}},
        {"anchorscope": {"decision": "fine"}},
        {"anchorscope": {"decision": ["pass"]}},
        {"anchorscope": {"decision": "pass", "code": ["pass"]}},
        {"message": {"anchorscope": PASS}},
        {"anchorscope": FLAG, "provider_specific_fields": {"anchorscope": PASS}},
        {"anchorscope": PASS, "provider_specific_fields": {"anchorscope": None}},
    ],
)
def test_what_cannot_be_read_is_never_shown(choice: dict[str, Any]):
    everything = DisplayPolicy([*WORST, *CODES.values()])
    assert verdict_of(choice) is None
    assert not everything.shows(verdict_of(choice))


NAMES = st.sampled_from(["decision", "code", "x"])


@given(st.recursive(st.none() | st.integers() | st.text(), lambda own: st.lists(own) | st.dictionaries(NAMES, own)))
def test_any_value_is_read_without_an_error(value: Any):
    verdict = verdict_of({"anchorscope": value, "provider_specific_fields": value})
    assert verdict is None or (verdict["decision"] in WORST and not isinstance(value, str))


def test_the_verdict_is_found_where_litellm_moves_it():
    assert verdict_of({"provider_specific_fields": {"anchorscope": PASS}}) == PASS
    assert verdict_of({"anchorscope": PASS, "provider_specific_fields": {"anchorscope": dict(PASS)}}) == PASS


@pytest.mark.parametrize("wrong", [{"show": "pass"}, {"show": ["good"]}, {"otherwise": "hide"}, {"text": 3}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]):
    with pytest.raises(AnchorscopeError):
        guardrail(**wrong)


def test_another_mode_is_refused_with_an_error_that_stops_litellm():
    with pytest.raises(AnchorscopeError, match="post_call"):
        guardrail(event_hook="pre_call")


def test_importing_the_guardrail_loads_nothing_heavy():
    program = """
import sys, litellm_interface
with litellm_interface.offered():
    import anchorscope.serve.guardrail
print([name for name in ("torch", "transformers", "numpy", "scipy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                          cwd=litellm_interface.__file__.rpartition("/")[0])  # fmt: skip
    assert done.stdout.strip() == "[]"


# --- what clients of LiteLLM get


def guardrail(**settings: Any) -> AnchorscopeGuardrail:
    return AnchorscopeGuardrail(**{"guardrail_name": "it", "event_hook": "post_call", "default_on": True, **settings})


def chat(*verdicts: Any) -> Any:
    """A chat response with an answer for each verdict; None has none."""
    tools = [{"id": "c", "type": "function", "function": {"name": SECRET, "arguments": "{}"}}]
    message = {"role": "assistant", "content": SECRET, "reasoning_content": SECRET, "tool_calls": tools}
    extra = {"logprobs": {"content": [{"token": SECRET, "logprob": -0.1, "bytes": None, "top_logprobs": []}]}}
    fields = [{} if verdict is None else {"anchorscope": verdict} for verdict in verdicts]
    choices = [
        {"index": number, "finish_reason": "stop", "message": dict(message), **extra,
         "provider_specific_fields": {"token_ids": [7, 8], **own}}
        for number, own in enumerate(fields)
    ]  # fmt: skip
    return ModelResponse(id="x", created=1, model="m", choices=choices)


def text(*verdicts: Any) -> Any:
    fields = [{} if verdict is None else {"anchorscope": verdict} for verdict in verdicts]
    logprobs = {"tokens": [SECRET], "token_logprobs": [-0.1], "top_logprobs": None, "text_offset": [0]}
    choice = {"finish_reason": "stop", "text": SECRET, "token_ids": [7], "logprobs": logprobs}
    choices = [{"index": number, **choice, **own} for number, own in enumerate(fields)]
    return TextCompletionResponse(id="x", created=1, model="m", choices=choices)


def whole(rail: AnchorscopeGuardrail, response: Any) -> list[dict[str, Any]]:
    """The choices that a client gets of a whole response."""
    judged = asyncio.run(rail.async_post_call_success_hook({}, None, response))
    return [choice.model_dump() for choice in judged.choices]


def streamed(rail: AnchorscopeGuardrail, response: Any) -> list[dict[str, Any]]:
    """The choices that a client gets of a stream, as LiteLLM comes by it."""

    async def act() -> list[dict[str, Any]]:
        kind = CallTypes.acompletion if isinstance(response, ModelResponse) else CallTypes.atext_completion
        kwargs = await rail.async_pre_call_deployment_hook({**ASKED, "stream": True, "stream_options": {}}, kind)
        assert kwargs is not None
        assert kwargs["stream"] is False
        assert "stream_options" not in kwargs
        made = await rail.async_post_call_success_deployment_hook(kwargs, response, kind)
        chunks = rail.async_post_call_streaming_iterator_hook(None, made, {})
        return [choice.model_dump() async for chunk in chunks for choice in chunk.choices]

    return asyncio.run(act())


WAYS = [(make, send) for make in (chat, text) for send in (whole, streamed)]


@pytest.mark.parametrize(("make", "send"), WAYS)
class TestEveryWay:
    def test_a_pass_is_shown_as_it_came(self, make: Any, send: Any):
        (choice,) = send(guardrail(), make(PASS))
        assert SECRET in str(choice)
        assert choice["anchorscope"] == PASS
        assert choice["finish_reason"] == "stop"

    @pytest.mark.parametrize("verdict", [FLAG, UNFLAGGED, None, "pass", {"decision": "fine"}])
    def test_all_others_are_blocked(self, make: Any, send: Any, verdict: Any):
        with pytest.raises(GuardrailRaisedException) as raised:
            send(guardrail(), make(verdict))
        assert raised.value.status_code == 400
        assert SECRET not in str(raised.value)

    def test_one_of_several_blocks_the_request(self, make: Any, send: Any):
        with pytest.raises(GuardrailRaisedException, match="flag"):
            send(guardrail(), make(PASS, FLAG))

    def test_nothing_of_a_replaced_answer_is_left(self, make: Any, send: Any):
        shown, replaced, unjudged = send(guardrail(otherwise="replace", text="Not sure."), make(PASS, FLAG, None))
        assert SECRET in str(shown)
        assert SECRET not in str(replaced) + str(unjudged)
        assert "token_ids" not in str(replaced) + str(unjudged)
        assert "Not sure." in str(replaced)
        assert [each["anchorscope"]["decision"] for each in (replaced, unjudged)] == ["flag", "cannot say"]
        assert [each["index"] for each in (shown, replaced, unjudged)] == [0, 1, 2]

    def test_a_tagged_answer_is_shown_with_its_decision(self, make: Any, send: Any):
        flagged, unjudged, unknown = send(guardrail(otherwise="tag"), make(FLAG, None, {"decision": "fine"}))
        assert all(SECRET in str(each) for each in (flagged, unjudged, unknown))
        assert flagged["anchorscope"] == FLAG
        assert unjudged["anchorscope"] == unknown["anchorscope"] == NO_VERDICT

    def test_judging_twice_changes_nothing(self, make: Any, send: Any):
        rail, response = guardrail(otherwise="replace"), make(PASS, FLAG)
        assert whole(rail, response) == whole(rail, response)


def test_a_stream_that_litellm_made_is_blocked():
    """Its verdict may be missing, or have been withdrawn in a chunk that LiteLLM dropped."""
    chunk = ModelResponseStream(choices=[{"index": 0, "delta": {"content": SECRET}, "anchorscope": PASS}])

    async def stream() -> Any:
        yield chunk

    for otherwise in ACTIONS:
        rail = guardrail(otherwise=otherwise)

        async def act(rail: Any = rail) -> list[Any]:
            return [each async for each in rail.async_post_call_streaming_iterator_hook(None, stream(), {})]

        with pytest.raises(GuardrailRaisedException, match="cannot say"):
            asyncio.run(act())


@pytest.mark.parametrize("response", [{"choices": []}, b"data: x", None, object()])
def test_a_response_of_another_kind_is_blocked(response: Any):
    for otherwise in ACTIONS:
        with pytest.raises(GuardrailRaisedException, match="cannot say"):
            whole(guardrail(otherwise=otherwise), response)


def test_requests_that_are_not_guarded_stay_as_they_are():
    async def act(rail: AnchorscopeGuardrail, request: dict[str, Any], kind: Any) -> Any:
        asked = {**request, "stream": True}
        assert await rail.async_pre_call_deployment_hook(dict(asked), kind) == asked
        return await rail.async_post_call_success_deployment_hook(asked, chat(PASS), kind)

    for rail, request, kind in (
        (guardrail(default_on=False), ASKED, CallTypes.acompletion),
        (guardrail(), ASKED, CallTypes.anthropic_messages),
        (guardrail(), {"metadata": {}}, CallTypes.acompletion),  # no proxy
    ):
        assert not isinstance(asyncio.run(act(rail, request, kind)), (StreamedChat, StreamedText))
