from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from anchorscope import AnchorscopeError, PromptSpec
from anchorscope.errors import StudyError
from anchorscope.models.prompts import Prompter
from anchorscope.study.asking import OF_TRANSFORMERS
from small_tokenizers import FAMILIES as SMALL
from small_tokenizers import texts
from tiny import tiny_tokenizer

pytestmark = pytest.mark.transformers
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if not thinking %}<think></think>{% endif %}{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer():
    made = tiny_tokenizer()
    made.chat_template = TEMPLATE
    return made


def test_a_completion_prompt_is_examples_question_and_cue(tokenizer):
    prompt = Prompter(tokenizer, PromptSpec(shots=1), wants_bos=False)("Who wrote Hamlet?")
    assert prompt.text == "Q: Which planet is closest to the Sun?\nA: Mercury\n\nQ: Who wrote Hamlet?\nA:"
    parts = {name: prompt.text[start:end] for name, (start, end) in prompt.segments.items()}
    assert parts["question"] == "Q: Who wrote Hamlet?"
    assert parts["cue"] == "\nA:"
    assert prompt.text[slice(*prompt.question)] == "Who wrote Hamlet?"
    assert tokenizer.decode(prompt.ids) == prompt.text


def test_a_context_stands_between_the_examples_and_the_question(tokenizer):
    prompt = Prompter(tokenizer, PromptSpec(shots=1), wants_bos=False)("Who?", "A passage.")
    names = list(prompt.segments)
    assert names == ["prefix", "context", "question", "cue"]
    assert prompt.text[slice(*prompt.segments["context"])] == "A passage.\n"


@pytest.mark.parametrize("style", ["completion", "chat"])
@pytest.mark.parametrize("wants_bos", [False, True])
def test_there_is_exactly_one_bos_where_the_model_wants_one(tokenizer, style, wants_bos):
    prompter = Prompter(tokenizer, PromptSpec(style=style, question="{question}", shots=2), wants_bos)
    ids = prompter("Who?").ids
    # the chat template brings its own
    assert ids.count(tokenizer.bos_token_id) == (1 if wants_bos or style == "chat" else 0)
    assert not wants_bos or ids[0] == tokenizer.bos_token_id
    assert prompter("Who?").bos == (1 if wants_bos and style == "completion" else 0)


def test_a_chat_prompt_follows_the_models_own_template_and_its_arguments(tokenizer):
    spec = PromptSpec(style="chat", system="Be brief.", shots=1, question="{question}", chat_kwargs={"thinking": True})
    prompt = Prompter(tokenizer, spec, wants_bos=True)("Who?")
    assert prompt.text == (
        "<bos><system>Be brief.</system>\n<user>Which planet is closest to the Sun?</user>\n"
        "<assistant>Mercury</assistant>\n<user>Who?</user>\n<assistant>"
    )
    assert prompt.text[slice(*prompt.question)] == "Who?"


def test_a_template_that_changes_the_question_is_refused():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content | upper }}{% endfor %}"
    with pytest.raises(AnchorscopeError, match="changes the question"):
        Prompter(tokenizer, PromptSpec(style="chat"), wants_bos=False)
    tokenizer.chat_template = None
    with pytest.raises(AnchorscopeError, match="needs a chat template"):
        Prompter(tokenizer, PromptSpec(style="chat"), wants_bos=False)


def test_a_study_gives_the_template_its_arguments_and_none_to_transformers():
    own = set(inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters) - {"self", "kwargs"}
    assert own <= OF_TRANSFORMERS
    for name in OF_TRANSFORMERS:
        with pytest.raises(StudyError, match=f"{name} is not an argument of the chat template"):
            PromptSpec(style="chat", chat_kwargs={name: "{{ 7 * 7 }}"})
    PromptSpec(style="chat", chat_kwargs={"enable_thinking": False})


def test_what_is_shared_is_shared_with_contexts_and_odd_first_characters(tokenizer):
    prompter = Prompter(tokenizer, PromptSpec(shots=1, question="Question:{question}"), wants_bos=False)
    for question in ('"Quoted" who?', "(who)", "'x'", "…"):
        for context in (None, "A passage.", "(x)"):
            prompt = prompter(question, context)  # raises if it does not start with the shared ids
            assert tokenizer.decode(prompt.ids) == prompt.text


@given(st.text(min_size=1, max_size=60).filter(str.strip), st.sampled_from(["completion", "chat"]))
def test_every_prompt_starts_with_the_shared_tokens_and_holds_the_question_unchanged(question, style):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    prompter = Prompter(tokenizer, PromptSpec(style=style, shots=1), wants_bos=False)
    prompt = prompter(question)
    assert prompt.ids[: len(prompter.shared_ids)] == prompter.shared_ids
    assert len(prompter.shared_ids) > 10
    assert prompt.text[slice(*prompt.question)] == question
    assert [a for a, _ in prompt.segments.values()][1:] == [b for _, b in prompt.segments.values()][:-1]  # gap-free


def test_a_template_that_asks_for_the_day_is_told_the_studys():
    """Llama 3's asks, through a function that transformers hands it."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
        "Today is {{ date_string }}. {% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    )
    said = {}
    for day in ("2026-01-01", "2024-07-26"):
        spec = PromptSpec(style="chat", shots=0, date=day)
        said[day] = Prompter(tokenizer, spec, wants_bos=False)("Who?").text
    assert said["2026-01-01"].startswith("Today is 01 Jan 2026.")
    assert said["2024-07-26"].startswith("Today is 26 Jul 2024.")
    given = PromptSpec(style="chat", shots=0, chat_kwargs={"date_string": "doomsday"})
    assert Prompter(tokenizer, given, wants_bos=False)("Who?").text.startswith("Today is doomsday.")
    with pytest.raises(StudyError, match="not a date of the calendar"):
        PromptSpec(style="chat", date="2026-02-30")


@pytest.mark.parametrize("family", SMALL)
@given(start=st.sampled_from([" ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u2028", "<s>", "<s> "]), text=texts)
def test_a_passage_may_begin_with_anything(family, start, text):
    """White space and special tokens change how the line ends before them are cut, but not what is shared."""
    made = SMALL[family]()
    prompter = Prompter(made, PromptSpec(shots=1), wants_bos=False)
    prompt = prompter("Who?", start + text)
    assert prompt.ids[: len(prompter.shared_ids)] == prompter.shared_ids
    assert prompt.text[slice(*prompt.segments["context"])] == f"{start}{text}\n"
    if family == "byte-level":  # which changes no text
        assert made.decode(prompt.ids) == prompt.text
