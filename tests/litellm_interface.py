"""What the guardrail needs of LiteLLM, for environments without it: the same names, arguments and attributes.

`checks/litellm_guardrail.py` tries the guardrail in a real LiteLLM proxy.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class CallTypes(str, Enum):
    acompletion = "acompletion"
    atext_completion = "atext_completion"
    anthropic_messages = "anthropic_messages"


class GuardrailEventHooks(str, Enum):
    pre_call = "pre_call"
    post_call = "post_call"


class GuardrailRaisedException(Exception):  # noqa: N818
    def __init__(self, guardrail_name: Any = None, message: str = "", should_wrap_with_default_message: bool = True):
        self.guardrail_name, self.message, self.status_code = guardrail_name, message, 400
        super().__init__(message)


class CustomGuardrail:
    def __init__(
        self, guardrail_name=None, supported_event_hooks=(), event_hook=None, default_on=False, **kwargs
    ) -> None:
        if GuardrailEventHooks(event_hook) not in supported_event_hooks:
            raise ValueError(f"Event hook {event_hook} is not in the supported event hooks")
        self.guardrail_name, self.default_on = guardrail_name, default_on

    def should_run_guardrail(self, data, event_type) -> bool:
        return self.default_on

    async def async_post_call_success_deployment_hook(self, request_data, response, call_type):
        return None


class Choices(_Open):
    index: int = 0
    finish_reason: str = "stop"
    message: _Open


class StreamingChoices(_Open):
    index: int = 0
    finish_reason: str | None = None
    delta: _Open


class TextChoices(_Open):
    index: int = 0
    finish_reason: str | None = None
    text: str | None = None


class ModelResponse(_Open):
    id: str = ""
    created: int = 0
    model: str | None = None
    choices: list[Choices]


class ModelResponseStream(_Open):
    choices: list[StreamingChoices]


class TextCompletionResponse(_Open):
    choices: list[TextChoices]


NAMES: dict[str, tuple[Any, ...]] = {
    "litellm": (),
    "litellm.exceptions": (GuardrailRaisedException,),
    "litellm.integrations": (),
    "litellm.integrations.custom_guardrail": (CustomGuardrail,),
    "litellm.types": (),
    "litellm.types.guardrails": (GuardrailEventHooks,),
    "litellm.types.utils": (
        CallTypes, Choices, ModelResponse, ModelResponseStream, StreamingChoices, TextChoices, TextCompletionResponse,
    ),
}  # fmt: skip


@contextmanager
def offered() -> Iterator[None]:
    """Offer the interface as `litellm` to what is imported meanwhile, unless LiteLLM itself is installed."""
    made = {} if importlib.util.find_spec("litellm") else {module: ModuleType(module) for module in NAMES}
    for name, module in made.items():
        vars(module).update({thing.__name__: thing for thing in NAMES[name]})
    sys.modules.update(made)
    yield
    for name in made:
        del sys.modules[name]
