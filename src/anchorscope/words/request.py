"""From a text to the tokens a model reads: its request as it is, without the passage, and with nothing asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from anchorscope.models.load import Model
from anchorscope.models.prompts import on_day
from anchorscope.spans.alignment import Range, align
from anchorscope.study import PromptSpec
from anchorscope.words.record import Message, Text

Part = Literal["whole", "no_passage", "nothing"]
"""The request as it is; without its passage; with neither a question nor a passage."""
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class Tokens:
    """The tokens of a response behind each form of its request."""

    prompts: dict[Part, tuple[int, ...]]
    """Tokens of the request, by form; a form that is the same as the whole request is left out."""
    response: tuple[int, ...]
    """Tokens of the response."""
    ranges: tuple[Range, ...]
    """Characters of the response that each token touches."""

    @property
    def longest(self) -> int:
        """Number of tokens of the longest pass."""
        return max(map(len, self.prompts.values())) + len(self.response)


class Requests:
    """Lays out the requests of texts for one model: by its chat template where it has one, else as plain text."""

    def __init__(self, model: Model) -> None:
        self.tokenizer, self._wants_bos = model.tokenizer, model.wants_bos
        template = self.tokenizer.chat_template
        # a template may write today's date: readings must not depend on the day
        self._template = None if template is None else on_day(self.tokenizer.get_chat_template(), PromptSpec().date)

    def __call__(self, text: Text) -> Tokens | None:
        """The tokens of a text; None where the tokens do not spell the response."""
        whole = self._written(text, "whole")
        own = self._ids(whole)
        joined = self._ids(whole + text.response)
        # tokens of the whole text where they continue the request's own, as the model would have written them
        response = joined[len(own) :] if joined[: len(own)] == own else self._plain_ids(text.response)
        # a BOS is no part of the text
        bos = len(own) - len(self._plain_ids(whole))
        ranges = align(
            self.tokenizer, [*own[bos:], *response], whole + text.response, token=len(own) - bos, char=len(whole)
        )
        if ranges is None:
            return None
        places = [(start - len(whole), end - len(whole)) for start, end in ranges]
        prompts: dict[Part, tuple[int, ...]] = {"whole": tuple(own)}
        for part in PARTS[1:]:
            ids = tuple(self._ids(self._written(text, part)) or self._start())
            if ids != prompts["whole"]:
                prompts[part] = ids
        prompts["whole"] = prompts["whole"] or tuple(self._start())
        return Tokens(prompts, tuple(response), tuple(places))

    @staticmethod
    def can_be_sent(text: Text) -> bool:
        """Whether a request could be sent to a server: there is one, and the response does not go on in it."""
        return bool(text.prompt or text.messages) and not text.continues

    def as_sent(self, text: Text) -> Text:
        """The request of a text alone, as a chat where the model has a template, else as one prompt."""
        if self._template is None:
            return Text(text.id, "", self._written(text, "whole"), continues=True)
        return Text(text.id, "", messages=tuple(_turns(text, "whole")))

    def prompt(self, text: Text) -> list[int]:
        """The tokens of a request."""
        return self._ids(self._written(text, "whole")) or self._start()

    def _written(self, text: Text, part: Part) -> str:
        """The request up to the response's first character."""
        turns = _turns(text, part)
        if text.continues:
            return "".join(turn.content for turn in turns)
        if self._template is None:
            return "".join(f"{turn.content}\n\n" for turn in turns if turn.content)
        written: str = self.tokenizer.apply_chat_template(
            [turn._asdict() for turn in turns],
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=True,
        )
        return written

    def _plain_ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False).input_ids
        return ids

    def _ids(self, text: str) -> list[int]:
        """Tokens with one BOS where the model wants one; a chat template usually brings it."""
        ids, bos = self._plain_ids(text), self.tokenizer.bos_token_id
        return [bos, *ids] if self._wants_bos and ids[:1] != [bos] else ids

    def _start(self) -> list[int]:
        """What stands before a response that nothing stands before: the token that ends a text."""
        end = self.tokenizer.eos_token_id
        return [end] if end is not None else self._plain_ids("\n\n")


def _turns(text: Text, part: Part) -> Sequence[Message]:
    """The turns of a request. What is left out is taken out of the turns that it stands in."""
    if text.messages:
        if part == "nothing":  # what the system said stays
            return [*(turn for turn in text.messages if turn.role == "system"), Message("user", "")]
        passage = text.passage if part == "no_passage" else None
        turns = [
            turn._replace(content=turn.content.replace(passage, "")) if passage else turn for turn in text.messages
        ]
        known = text.passage is None or any(text.passage in turn.content for turn in text.messages)
        if part == "whole" and not known:
            turns[-1] = turns[-1]._replace(content=_behind(turns[-1].content, text.passage))
        return turns
    if part == "nothing":
        return [Message("user", "")]
    if text.passage is not None and text.passage in text.prompt:
        asked = text.prompt if part == "whole" else text.prompt.replace(text.passage, "")
    else:
        asked = _behind(text.prompt, text.passage if part == "whole" else None)
    return [Message("user", asked)]


def _behind(prompt: str, passage: str | None) -> str:
    return "\n\n".join(piece for piece in (prompt, passage) if piece)


def context_length(model: Any) -> int | None:
    """The most tokens that a model can read, or None if its configuration does not say."""
    most = getattr(model.network.config.get_text_config(), "max_position_embeddings", None)
    return int(most) if most else None
