"""Arguments of the public functions, looked at before anything else: one sentence with the fix where one is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anchorscope.errors import AnchorscopeError, shown


class ArgumentError(AnchorscopeError):
    """An argument of the wrong type."""


def text(name: str, value: object) -> str:
    """A text that is not empty."""
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, str):
        raise ArgumentError(f"{name} is empty", f"Give {name} as a text.")
    if value is None:
        raise ArgumentError(f"{name} is None", f"Give {name} as a text.")
    if is_chat(value):
        raise ArgumentError(
            f"{name} should be a text, not chat messages",
            "Give the text of the user's turn; prompt=PromptSpec(style='chat') puts it into the model's chat template.",
        )
    if isinstance(value, (list, tuple)):
        raise ArgumentError(f"{name} should be one text, not a list of {len(value)}", f"Give one {name} at a time.")
    raise ArgumentError(f"{name} should be a text, not {shown(value)}", f"Give {name} as a text.")


def is_chat(value: object) -> bool:
    """Whether it is a list of messages with roles, as chat templates take them."""
    return isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) and "role" in item for item in value)


def texts(**given: object) -> list[list[str]]:
    """Each argument as a list of texts: all are one text, or all are lists of the same length."""
    lists: list[list[str]] = []
    for name, value in given.items():
        if is_chat(value):
            text(name, value)
        several = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        values: Iterable[Any] = value if several else [value]  # type: ignore[assignment]
        lists.append([text(f"{name}[{i}]" if several else name, item) for i, item in enumerate(values)])
    if len({len(items) for items in lists}) > 1:
        sizes = " and ".join(f"{len(items)} of {name}" for name, items in zip(given, lists, strict=True))
        raise ArgumentError(f"these must be equally many, but there are {sizes}", "Give one answer for each question.")
    return lists


def contexts(value: object, questions: Sequence[str]) -> list[str | None] | None:
    """A passage, or one for each question, None where a question has none; None where no passages are given."""
    if value is None:
        return None
    several = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    values: Sequence[Any] = value if several else [value]  # type: ignore[assignment]
    if len(values) != len(questions):
        raise ArgumentError(
            f"these must be equally many, but there are {len(questions)} of question and {len(values)} of context",
            "Give one passage for each question, or None where it has none.",
        )
    return [None if item is None else text(f"context[{i}]", item).strip() for i, item in enumerate(values)]


def numbers(name: str, value: object) -> list[int]:
    """Whole numbers, as a list or a range."""
    if isinstance(value, int) and not isinstance(value, bool):
        raise ArgumentError(f"{name} should be a list of numbers, not {value}", f"Give {name}=[{value}].")
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ArgumentError(
            f"{name} should be a list of numbers, not {shown(value)}", f"Give a list such as {name}=[3, 4, 5]."
        )
    items = list(value)
    wrong = [item for item in items if not isinstance(item, int) or isinstance(item, bool)]
    if wrong:
        raise ArgumentError(
            f"{name} holds {shown(wrong[0])}, which is not a whole number", f"Give a list such as {name}=[3, 4, 5]."
        )
    return items


def library(name: str, why: str) -> Any:
    """A library that is needed for one thing alone; where it is missing, how to get it."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise ArgumentError(f"{why} needs {name}, which is not installed", f"Run: pip install {name}") from None
