"""Judge the words of one response, for example in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from anchorscope import doors
from anchorscope.models.load import Tokenizer
from anchorscope.models.opened import ModelLike, open_model
from anchorscope.words.detector import WordDetector
from anchorscope.words.record import Judged, Message, Text


def judge_words(
    model: ModelLike,
    response: str,
    detector: WordDetector | str | Path,
    *,
    prompt: str = "",
    messages: Sequence[Mapping[str, str]] | None = None,
    passage: str | None = None,
    tokenizer: Tokenizer = None,
) -> Judged:
    """Judge every word of one response with a fitted detector of words.

    `model` is what `open_model` takes. Give a model object together with its `tokenizer`. `prompt` is the request as a
    text, and `messages` is a chat instead. `passage` is a text that the response should agree with. If the request does
    not contain it, it is put behind it. The result can be printed, and displayed in a notebook.
    """
    if prompt and messages:
        raise doors.ArgumentError("there are both prompt and messages", "Give one of them.")
    turns = tuple(Message(doors.text("role", turn["role"]), turn["content"]) for turn in messages or ())
    fitted = detector if isinstance(detector, WordDetector) else WordDetector.load(detector)
    text = Text("response", doors.text("response", response), prompt, turns, passage)
    (judged,) = fitted(open_model(model, tokenizer), [text])
    return judged
