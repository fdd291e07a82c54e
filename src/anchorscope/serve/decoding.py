"""Whether a request is decoded like the answers that a detector was fitted on. Its promise is about no others.

OpenAI's defaults hold where neither the request nor the server's generation config says anything: a temperature of 1.
With a temperature of 0 the most likely token is taken, whatever `top_p`, `top_k`, `min_p`, `seed` and `n` say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anchorscope.detectors.card import Decoding
from anchorscope.detectors.reasons import OTHER_DECODING

DRAWN = {"temperature": 1.0, "top_p": 1.0, "top_k": 0.0, "min_p": 0.0}
"""Settings of drawing, with their defaults."""
MOVED = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "min_tokens": 0.0}
"""Settings that change probabilities, with the value that leaves them as they are."""
CONSTRAINTS = (
    "logit_bias", "bad_words", "allowed_token_ids", "ignore_eos", "logits_processors", "structured_outputs",
    "guided_json", "guided_regex", "guided_choice", "guided_grammar",
)  # fmt: skip
"""Settings that forbid or favour tokens where they are given."""


UNFORCED = (None, "auto", "none")
"""Values of `tool_choice` that force no tool call."""


def other_decoding(data: Mapping[str, Any], fitted: Decoding, defaults: Mapping[str, Any]) -> str:
    """Why the answers to a request are decoded otherwise than those of the fit; empty if they are not.

    `data`: the request. `defaults`: what the server takes where the request says nothing.
    """
    drawn = {"top_p": fitted.top_p, "top_k": 0.0, "min_p": 0.0} if fitted.temperature > 0 else {}
    wanted = {"temperature": fitted.temperature, **drawn, **MOVED}
    for name, value in wanted.items():
        stated = data.get(name) is not None
        given = data[name] if stated else defaults.get(name, {**DRAWN, **MOVED}[name])
        if type(given) not in (int, float) or abs(given) > 1e6:
            return _told(f"its {name} is not a number", fitted, f'Send "{name}": {value:g}')
        if name == "top_k" and given == -1:  # vLLM's other word for all tokens
            given = 0
        if given != value:
            source = "" if stated else " (the default of the server)"
            return _told(f"its {name} is {given:g}{source}", fitted, f'Send "{name}": {value:g}')
    others = [name for name in CONSTRAINTS if data.get(name)]
    if data.get("tool_choice") not in UNFORCED:
        others.append("tool_choice")
    form = data.get("response_format")
    if form and not (isinstance(form, dict) and form.get("type") == "text"):
        others.append("response_format")
    if data.get("best_of") not in (None, 1, data.get("n")):
        others.append("best_of")
    return _told(f"the request has {others[0]}", fitted, f"Leave {others[0]} out") if others else ""


def _told(what: str, fitted: Decoding, to_do: str) -> str:
    return (
        f"{OTHER_DECODING}: {what}, but the detector was fitted on {fitted} answers. {to_do}, or fit a detector on "
        "answers that were decoded like this (detect fit FILE --temperature T)"
    )
