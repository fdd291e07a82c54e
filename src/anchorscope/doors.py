"""Checks of the arguments of public functions. A wrong argument gets one sentence that says how to fix it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anchorscope.errors import AnchorscopeError, shown


class ArgumentError(AnchorscopeError):
    """An argument of the wrong type."""


def text(name: str, value: object) -> str:
    """Check that an argument is a text that is not empty."""
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
    """Whether the value is a list of messages with roles, as for a chat template."""
    return isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) and "role" in item for item in value)


def texts(**given: object) -> list[list[str]]:
    """Each argument as a list of texts. Either all are one text, or all are lists of the same length."""
    lists: list[list[str]] = []
    for name, value in given.items():
        if is_chat(value):
            text(name, value)
        several = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        values: Iterable[Any] = value if several else [value]  # type: ignore[assignment]
        lists.append([text(f"{name}[{i}]" if several else name, item) for i, item in enumerate(values)])
    if len({len(items) for items in lists}) > 1:
        sizes = " and ".join(f"{name} has {len(items)}" for name, items in zip(given, lists, strict=True))
        raise ArgumentError(f"lists that belong together differ in length: {sizes}", "Give one answer per question.")
    return lists


def contexts(value: object, questions: Sequence[str]) -> list[str | None] | None:
    """The passage of each question (None for a question without one), or None if no passages are given."""
    if value is None:
        return None
    several = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    values: Sequence[Any] = value if several else [value]  # type: ignore[assignment]
    if len(values) != len(questions):
        raise ArgumentError(
            f"lists that belong together differ in length: question has {len(questions)} and context has {len(values)}",
            "Give one passage per question, or None for a question without one.",
        )
    return [None if item is None else text(f"context[{i}]", item).strip() for i, item in enumerate(values)]


def numbers(name: str, value: object) -> list[int]:
    """Check that an argument is a list or range of whole numbers."""
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
    """Import an optional library. If it is missing, the error says how to install it."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise ArgumentError(f"{why} needs {name}, which is not installed", f"Run: pip install {name}") from None
