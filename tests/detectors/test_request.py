"""The request that asks a server with a detector's prompt: it makes the tokens that `Detector.answer` reads."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from anchorscope import AnchorscopeError, PromptSpec
from anchorscope.detectors.session import Detector
from anchorscope.models.prompts import Prompter
from anchorscope.serve.judge import LiveJudge
from serving import detector_of
from tiny import tiny_tokenizer

pytestmark = pytest.mark.transformers
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if not thinking %}<think></think>{% endif %}{% endif %}"
)
PROMPTS = {
    "completion": PromptSpec(),
    "completion, own words": PromptSpec(shots=1, question="Question: {question}", cue="Answer:"),
    "completion, no examples": PromptSpec(shots=0),
    "chat": PromptSpec(style="chat", shots=0, question="{question}"),
    "chat with everything": PromptSpec(
        style="chat", shots=2, system="Be brief.", question="Q: {question}", chat_kwargs={"thinking": True}
    ),
}
QUESTIONS = [
    ("Who wrote Frankenstein?", None),
    ("Which {hill} is 'near'?", None),
    ("Who?", "A passage.\nOf two lines."),
]


def with_prompt(spec: PromptSpec) -> Detector:
    made = detector_of()
    return replace(made, about=replace(made.about, prompt=spec.model_dump(mode="json")))


def rendered(tokenizer: Any, body: dict[str, Any]) -> list[int]:
    """The tokens that a server makes of a request: a prompt gets special tokens, a chat the template's."""
    if "messages" in body:
        more = body.get("chat_template_kwargs", {})
        text = tokenizer.apply_chat_template(body["messages"], tokenize=False, add_generation_prompt=True, **more)
        return list(tokenizer(text, add_special_tokens=False).input_ids)
    return list(tokenizer(body["prompt"]).input_ids)


@pytest.mark.parametrize(("question", "context"), QUESTIONS)
@pytest.mark.parametrize("name", PROMPTS)
def test_a_request_makes_the_tokens_that_the_detector_reads(name: str, question: str, context: str | None):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    body = json.loads(json.dumps(with_prompt(PROMPTS[name]).request(question, context=context)))
    brings_bos = tokenizer("x").input_ids[0] == tokenizer.bos_token_id
    prompter = Prompter(tokenizer, PROMPTS[name], wants_bos=brings_bos)
    assert rendered(tokenizer, body) == prompter(question, context).ids
    assert prompter.read_back(rendered(tokenizer, body)) == (question, context, prompter(question, context))
    assert ("messages" in body) is (PROMPTS[name].style == "chat")
    assert ("chat_template_kwargs" in body) is bool(PROMPTS[name].chat_kwargs)
    assert (body["temperature"], body["stop"]) == (0, ["\n"])


def test_the_server_reads_the_question_out_of_a_request():
    tokenizer = tiny_tokenizer()
    detector = detector_of()
    judge = LiveJudge("it", detector, tokenizer)
    ids = rendered(tokenizer, detector.request("Who wrote Frankenstein?"))
    read = judge.prompter.read_back(ids)
    assert read is not None
    assert read[0] == "Who wrote Frankenstein?"


@pytest.mark.parametrize("question", ["", None, ["Who?", "What?"], [{"role": "user", "content": "Who?"}]], ids=repr)
def test_what_is_no_question_is_refused(question: Any):
    with pytest.raises(AnchorscopeError, match="question"):
        detector_of().request(question)
    with pytest.raises(AnchorscopeError, match="context"):
        detector_of().request("Who?", context=" ")
