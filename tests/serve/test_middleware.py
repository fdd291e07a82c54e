"""What the server says at its start about the prompts that it makes of requests."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from anchorscope.models.prompts import Prompter
from anchorscope.serve.middleware import _compare_prompts
from anchorscope.study import PromptSpec
from tiny import tiny_tokenizer

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if dated %}{{ strftime_now('%d %b %Y') }}{% endif %}{% if not thinking %}<think></think>{% endif %}"
)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        (PromptSpec(shots=0), []),
        (PromptSpec(style="chat", shots=0), []),
        (PromptSpec(style="chat", shots=0, chat_kwargs={"thinking": True}), ["INFO"]),
        (PromptSpec(style="chat", shots=0, date="2024-07-26", chat_kwargs={"dated": True}), ["WARNING"]),
    ],
)
def test_chat_arguments_of_the_fit_are_named_and_a_changed_layout_is_warned_of(prompt, said, caplog):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    prompter = Prompter(tokenizer, prompt, wants_bos=False)
    with caplog.at_level(logging.INFO, logger="vllm.anchorscope"):
        _compare_prompts(SimpleNamespace(name="it", prompter=prompter, tokenizer=tokenizer))  # type: ignore[arg-type]
    assert [record.levelname for record in caplog.records] == said
    if said == ["INFO"]:
        assert "--default-chat-template-kwargs '{\"thinking\": true}'" in caplog.text


@pytest.mark.parametrize("wants_bos", [False, True])
def test_a_tokenizer_without_the_bos_of_the_fit_is_warned_of(wants_bos, caplog):
    tokenizer = tiny_tokenizer()  # which puts none before a text
    prompter = Prompter(tokenizer, PromptSpec(shots=1), wants_bos)
    _compare_prompts(SimpleNamespace(name="it", prompter=prompter, tokenizer=tokenizer))  # type: ignore[arg-type]
    assert ("Send prompts as token ids" in caplog.text) == wants_bos
