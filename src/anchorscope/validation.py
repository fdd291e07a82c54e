"""From a YAML file to a typed object, with errors for the person who wrote the file.

A mistyped key is refused with the nearest right one, and every complaint carries its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from anchorscope.errors import StudyError, did_you_mean, printable
from anchorscope.yamlfile import YamlFile

T = TypeVar("T", bound=BaseModel)
Loc = tuple[int | str, ...]


def validate(kind: type[T], file: YamlFile) -> T:
    """Turn the file into a `kind`; StudyError lists everything that is wrong with it."""
    if not isinstance(file.data, dict):
        what = "empty" if file.data is None else "not a mapping of keys to values"
        raise StudyError(f"{file.path}: the file is {what}", f"It should start with: {_required(kind)}")
    try:
        return kind.model_validate(file.data)
    except ValidationError as error:
        lines = explain(kind, error, file)
    except RecursionError:
        lines = [f"{file.path}: nested too deeply"]
    raise StudyError("\n".join(lines))


def explain(kind: type[BaseModel], error: ValidationError, file: YamlFile) -> list[str]:
    """One line for each thing that is wrong: file, line, field, and what to write instead."""
    lines: list[tuple[int, str]] = []
    for item in error.errors(include_url=False, include_context=True):
        loc = _real_loc(item["loc"], file.data)
        line = file.line(loc)
        where = f"{file.path}:{line}" if line else f"{file.path}"
        text = f"{where}: {_message(kind, loc, item)}"
        if (line or 0, text) not in lines:
            lines.append((line or 0, text))
    return [text for _, text in sorted(lines, key=lambda pair: pair[0])]


def _message(kind: type[BaseModel], loc: Loc, item: Any) -> str:
    field = printable(_dotted(loc)) or "the file"
    if item["type"] == "extra_forbidden":
        parent = _model_at(kind, loc[:-1])
        key = str(loc[-1])
        suggestion = did_you_mean(key, parent.model_fields) if parent else ""
        return f"unknown key '{printable(key)}'; {suggestion}"
    if item["type"] == "missing":
        return f"{field} is missing"
    problem = str(item["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    given = item["input"]
    if item["type"] == "literal_error":
        choices = [choice.strip().strip("'") for choice in item["ctx"]["expected"].replace(" or ", ", ").split(",")]
        return f"{field}: '{printable(str(given))}' is not possible; {did_you_mean(str(given), choices)}"
    if item["type"] == "string_pattern_mismatch":
        problem = "use letters, digits, dot, dash and underscore, starting with a letter or digit"
    elif item["type"] == "value_error":
        return f"{field}: {problem}" if loc else problem
    elif item["type"].endswith("_type") or item["type"].endswith("_parsing"):
        problem = f"should be {problem}"
    return f"{field}: {problem}, not {printable(repr(given), 60)}"


def _real_loc(loc: Sequence[int | str], data: Any) -> Loc:
    """`loc` without the names pydantic adds for the branches of a union."""
    real: list[int | str] = []
    for index, part in enumerate(loc):
        if isinstance(data, (dict, list)) and _has(data, part):
            data = data[part]
            real.append(part)
        elif index == len(loc) - 1 and isinstance(data, dict) and str(part).isidentifier():
            real.append(part)  # a key that is missing
    return tuple(real)


def _has(data: dict[Any, Any] | list[Any], part: int | str) -> bool:
    return part in data if isinstance(data, dict) else isinstance(part, int) and part < len(data)


def _model_at(kind: type[BaseModel], loc: Loc) -> type[BaseModel] | None:
    """The model whose keys stand at `loc`."""
    model: type[BaseModel] | None = kind
    for part in loc:
        if isinstance(part, int) or model is None:
            continue
        info = model.model_fields.get(part)
        model = _model_in(info.annotation) if info else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The first model inside list[…], … | None, Annotated[…]."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_in(argument)
        if found:
            return found
    return None


def _dotted(loc: Loc) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _required(kind: type[BaseModel]) -> str:
    return ", ".join(f"{name}:" for name, info in kind.model_fields.items() if info.is_required())
