"""What the server says at its start about a detector that was fitted with a chat prompt."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from anchorscope.models.prompts import Prompter
from anchorscope.serve.middleware import _compare_chats
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
        _compare_chats(SimpleNamespace(name="it", prompter=prompter, tokenizer=tokenizer))  # type: ignore[arg-type]
    assert [record.levelname for record in caplog.records] == said
    if said == ["INFO"]:
        assert "--default-chat-template-kwargs '{\"thinking\": true}'" in caplog.text
