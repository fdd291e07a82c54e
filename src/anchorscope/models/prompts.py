"""From a question to the tokens a model reads: named segments, and exactly one BOS where the model wants one.

A prompt is tokenized as one text, so that its tokens are those the model was trained on ("?" and the line end after it
may be one token). Segments are character ranges of that text; which tokens they are is found by decoding (spans/).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from anchorscope.errors import ModelError, printable
from anchorscope.study import PromptSpec

# Questions that share no first or last character: what their prompts have in common is the template. Quotes and
# brackets join the token before them in some vocabularies.
_PROBES = ("Who?", "7 zebras")
_SHARED_PROBES: list[tuple[str, str | None]] = [
    *((text, None) for text in (*_PROBES, '"x" y', "'x' y", "(x) y", "é", "…")),
    ("Who?", "A passage."),
    ("x", "7"),
]


@dataclass(frozen=True)
class Prompt:
    text: str
    """The whole prompt, without BOS."""
    ids: list[int]
    """Its token ids, with BOS where the model wants one."""
    bos: int
    """How many ids at the front, 0 or 1, are a BOS that is not in `text`."""
    segments: dict[str, tuple[int, int]]
    """Character ranges of prefix, context (if any), question and cue, in this order and without gaps."""
    question: tuple[int, int]
    """Character range of the bare question."""


class Prompter:
    """Puts questions to one model in one style."""

    def __init__(self, tokenizer: Any, spec: PromptSpec, wants_bos: bool) -> None:
        self.tokenizer, self.spec = tokenizer, spec
        self._head, self._tail = self._template()
        # a chat template usually brings the BOS in its text
        brought = tokenizer.bos_token is not None and self._head.startswith(tokenizer.bos_token)
        self._bos: list[int] = [tokenizer.bos_token_id] if wants_bos and not brought else []
        self.shared_ids: list[int] = self._shared()

    def __call__(self, question: str, context: str | None = None) -> Prompt:
        return self.many([(question, context)])[0]

    def many(self, questions: Sequence[tuple[str, str | None]]) -> list[Prompt]:
        """Make prompts, tokenizing all at once.

        White space at the start of a passage, or a special token, changes how a byte-level tokenizer cuts the line ends
        before it. Such a prompt is tokenized in two parts, so that it starts with the shared prefix all the same.
        """
        layouts = [self._lay_out(question, context) for question, context in questions]
        ids = self.tokenizer([text for text, _, _ in layouts], add_special_tokens=False).input_ids
        prompts = [
            Prompt(text, [*self._bos, *tokens], len(self._bos), segments, place)
            for (text, segments, place), tokens in zip(layouts, ids, strict=True)
        ]
        return [prompt if self._shares(prompt) else self._in_two_parts(prompt) for prompt in prompts]

    def _shares(self, prompt: Prompt) -> bool:
        return prompt.ids[: len(self.shared_ids)] == self.shared_ids

    def _in_two_parts(self, prompt: Prompt) -> Prompt:
        """The same prompt as the shared prefix and the tokens of the text after it."""
        shared = self.tokenizer.decode(self.shared_ids[len(self._bos) :], clean_up_tokenization_spaces=False)
        if not prompt.text.startswith(shared):
            question = printable(prompt.text[slice(*prompt.question)])
            raise ModelError(f"the prompt of '{question}' does not start with the prefix that all prompts share")
        rest = self.tokenizer(prompt.text[len(shared) :], add_special_tokens=False).input_ids
        return replace(prompt, ids=[*self.shared_ids, *rest])

    def read_back(self, ids: Sequence[int]) -> tuple[str, str | None, Prompt] | None:
        """The question, the context and the prompt that these tokens are; None where they are no prompt of this one."""
        if list(ids[: len(self.shared_ids)]) != self.shared_ids:
            return None
        text = self.tokenizer.decode(ids[len(self._bos) :])
        if not (text.startswith(self._head) and text.endswith(self._tail)) or len(text) < len(self._head + self._tail):
            return None
        before, after = self.spec.question.split("{question}")
        line = text[len(self._head) : len(text) - len(self._tail)]
        context, cut, rest = line.rpartition(f"\n{before}")
        if not cut:
            context, rest = "", line.removeprefix(before)
        question = rest.removesuffix(after) if after else rest
        # a turn or an example of the client's own is neither a passage nor a question
        marks = [self.spec.cue, *([before] if before.strip() else []), *self.tokenizer.all_special_tokens]
        if any(mark and mark in text for mark in marks for text in (context, question)):
            return None
        prompt = self(question, context or None)
        return (question, context or None, prompt) if prompt.ids == list(ids) else None

    def describe(self) -> dict[str, Any]:
        """The exact template, for the manifest."""
        return {
            "head": self._head,
            "question": self.spec.question,
            "tail": self._tail,
            "bos": bool(self._bos),
            "shared_ids": self.shared_ids,
        }

    def _lay_out(self, question: str, context: str | None) -> tuple[str, dict[str, tuple[int, int]], tuple[int, int]]:
        before, after = self.spec.question.split("{question}")
        passage = f"{context}\n" if context else ""
        text = f"{self._head}{passage}{before}{question}{after}{self._tail}"
        segments = {"prefix": (0, len(self._head))}
        start = len(self._head) + len(passage)
        if passage:
            segments["context"] = (len(self._head), start)
        end = start + len(before) + len(question) + len(after)
        segments["question"] = (start, end)
        segments["cue"] = (end, len(text))
        place = start + len(before)
        return text, segments, (place, place + len(question))

    def _template(self) -> tuple[str, str]:
        """What stands before and after the line with the question, the same for all questions."""
        if self.spec.style == "completion":
            return _around(self.spec)
        lines = [_line(self.spec, probe) for probe in _PROBES]
        return _split_around([self._render(line) for line in lines], lines)

    def turns(self, question: str) -> list[dict[str, str]]:
        """The messages of a chat that asks a question."""
        return _turns(self.spec, _line(self.spec, question))

    def _render(self, line: str) -> str:
        """A conversation by the model's own chat template."""
        if self.tokenizer.chat_template is None:
            raise ModelError("style: chat needs a chat template, and this model has none", "Set style: completion.")
        return self.tokenizer.apply_chat_template(
            _turns(self.spec, line),
            chat_template=on_day(self.tokenizer.get_chat_template(), self.spec.date),
            tokenize=False,
            add_generation_prompt=True,
            **self.spec.chat_kwargs,
        )

    def _shared(self) -> list[int]:
        """The token ids all prompts of this template start with."""
        self.shared_ids = []
        probes = [prompt.ids for prompt in self.many(_SHARED_PROBES)]
        bos = self.tokenizer.bos_token_id
        if bos is not None and probes[0][:2] == [bos, bos]:
            raise ModelError("the prompt starts with two BOS tokens", "The chat template adds one: report this model.")
        count = 0
        while all(len(ids) > count + 1 and ids[count] == probes[0][count] for ids in probes):
            count += 1
        return probes[0][:count]


def server_prompt(spec: PromptSpec, question: str, context: str | None = None) -> dict[str, Any]:
    """The prompt as fields of a request to a server with OpenAI's API, which lays it out by the model's tokenizer.

    A chat prompt is `messages` and, where the chat template has arguments, `chat_template_kwargs`. A completion prompt
    is `prompt`.
    """
    line = (f"{context}\n" if context else "") + _line(spec, question)
    if spec.style == "completion":
        head, tail = _around(spec)
        return {"prompt": f"{head}{line}{tail}"}
    arguments = {"chat_template_kwargs": dict(spec.chat_kwargs)} if spec.chat_kwargs else {}
    return {"messages": _turns(spec, line), **arguments}


def _line(spec: PromptSpec, question: str) -> str:
    return spec.question.replace("{question}", question)


def _around(spec: PromptSpec) -> tuple[str, str]:
    """What stands before and after the question's line in a completion prompt."""
    shots = (
        f"{_line(spec, example.question)}\n{spec.cue} {example.answer}\n\n" for example in spec.examples[: spec.shots]
    )
    return "".join(shots), f"\n{spec.cue}"


def _turns(spec: PromptSpec, line: str) -> list[dict[str, str]]:
    """The messages of a chat prompt: system turn, solved questions, the question's line."""
    turns = [{"role": "system", "content": spec.system}] if spec.system else []
    for example in spec.examples[: spec.shots]:
        turns.append({"role": "user", "content": _line(spec, example.question)})
        turns.append({"role": "assistant", "content": example.answer})
    return [*turns, {"role": "user", "content": line}]


_TODAY = re.compile(r"""strftime_now\(\s*(['"])(.*?)\1\s*\)""")


def on_day(template: str, date: str) -> str:
    """The chat template with every question for today's date answered: a run must not depend on its day."""
    day = datetime.fromisoformat(date)
    return _TODAY.sub(lambda call: f"{call[1]}{day.strftime(call[2])}{call[1]}", template)


def _split_around(rendered: list[str], lines: list[str]) -> tuple[str, str]:
    """The text before and after the question's line, checked on two different questions."""
    around = []
    for text, line in zip(rendered, lines, strict=True):
        place = text.rfind(line)
        around.append((text[:place], text[place + len(line) :]) if place >= 0 else ("", text))
    if around[0] != around[1] or rendered[0] != around[0][0] + lines[0] + around[0][1]:
        raise ModelError(
            "the chat template changes the question's text, so its tokens cannot be found", "Set style: completion."
        )
    return around[0]


def closing_id(tokenizer: Any, style: str) -> int:
    """The first token behind an answer: of the empty line that follows one in a prompt, or the end of a turn."""
    if style == "chat" and tokenizer.eos_token_id is not None:
        return int(tokenizer.eos_token_id)
    return tokenizer("\n\n", add_special_tokens=False).input_ids[0]


def answer_ids(prompter: Prompter, prompt: Prompt, answer: str) -> list[int]:
    """The tokens of an answer after its prompt: those of the whole text, where they continue the prompt's own."""
    if not answer:
        return []
    lead = " " if prompter.spec.style == "completion" else ""
    tokenizer = prompter.tokenizer
    whole: list[int] = tokenizer(prompt.text + lead + answer, add_special_tokens=False).input_ids
    own = len(prompt.ids) - prompt.bos
    if whole[:own] == prompt.ids[prompt.bos :]:
        return whole[own:]
    return tokenizer(lead + answer, add_special_tokens=False).input_ids
