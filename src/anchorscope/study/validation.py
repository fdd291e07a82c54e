"""Turn a YAML file, or keyword arguments, into a typed object, with errors for the person who wrote them.

A mistyped key is refused with a suggestion, and every error names its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from anchorscope.errors import StudyError, did_you_mean, printable, shown
from anchorscope.study.yamlfile import YamlFile

MAX_ERRORS = 20  # said at once
T = TypeVar("T", bound=BaseModel)
Loc = tuple[int | str, ...]


def validate(kind: type[T], file: YamlFile) -> T:
    """Turn the file into a `kind`. A StudyError lists everything that is wrong with it."""
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


def build(kind: type[T], **fields: Any) -> T:
    """Make a `kind` from keyword arguments. A StudyError says what is wrong, as for a file."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise explained(kind, error, fields) from None


def explained(kind: type[BaseModel], error: ValidationError, fields: dict[str, Any]) -> StudyError:
    """The error for wrong keyword arguments, in the same words as for a file."""
    return StudyError("\n".join(explain(kind, error, YamlFile(None, fields, None))))


def check_word(name: str, value: object, words: object) -> None:
    """Refuse an argument that is not one of the words of a Literal, and suggest the nearest one."""
    choices = get_args(words)
    if value not in choices:
        raise StudyError(f"{name}: {shown(value)} is not possible; {did_you_mean(str(value), choices)}")


def explain(kind: type[BaseModel], error: ValidationError, file: YamlFile) -> list[str]:
    """One line for each thing that is wrong: file, line, field, and what to write instead."""
    by_place: dict[Loc, list[Any]] = {}
    items = error.errors(include_url=False)
    for item in items[:MAX_ERRORS]:
        by_place.setdefault(_real_loc(item["loc"], file.data), []).append(item)
    lines = [(file.line(loc) or 0, _message(kind, loc, items)) for loc, items in by_place.items()]
    lines.sort(key=lambda pair: pair[0])
    place = f"{file.path}: " if file.path else ""
    messages = [f"{file.path}:{line}: {text}" if line else f"{place}{text}" for line, text in lines]
    return messages + ([f"… and {len(items) - MAX_ERRORS:,} more"] if len(items) > MAX_ERRORS else [])


def first_problem(error: ValidationError) -> str:
    """The first thing that is wrong with a file that a program wrote: the field, what is wrong, and the value."""
    item = error.errors(include_url=False)[0]
    field, problem = printable(_dotted(item["loc"])), str(item["msg"]).removeprefix("Value error, ")
    seen = "" if item["type"] in ("missing", "value_error", "extra_forbidden") else f", not {shown(item['input'])}"
    return f"{field}: {problem}{seen}" if field else problem


def _message(kind: type[BaseModel], loc: Loc, items: list[Any]) -> str:
    """Say what is wrong at one place. Several items are the branches of a union, none of which fitted."""
    item, field = items[0], printable(_dotted(loc))
    given = shown(item["input"])
    if item["type"] == "extra_forbidden":
        parent, key = _model_at(kind, loc[:-1]), str(loc[-1])
        if renamed := getattr(parent, "RENAMED", {}).get(key):
            return f"'{key}' is now called '{renamed}'"
        if removed := getattr(parent, "REMOVED", {}).get(key):
            return f"{field}: {removed[1]}"
        return f"unknown key '{printable(key)}'; {did_you_mean(key, parent.model_fields if parent else ())}"
    if item["type"] == "invalid_key":
        return f"{_dotted(loc[:-1])}: {shown(loc[-1])} cannot be a key (1,000 is written 1000)"
    if item["type"] == "string_too_short":
        return f"{field} is empty"
    if item["type"] == "missing":
        return f"{field} is missing"
    if item["type"] == "value_error":
        problem = str(item["msg"]).removeprefix("Value error, ")
        return f"{field}: {problem}" if field else problem
    if item["type"] == "literal_error":
        choices = [choice.strip(" '") for choice in item["ctx"]["expected"].replace(" or ", ", ").split(",")]
        return f"{field}: {given} is not possible; {did_you_mean(shown(item['input']), choices)}"
    if item["type"] == "string_pattern_mismatch" and loc[-1] == "id":
        return f"{field}: should be owner/name, not {given}"
    if item["type"] == "string_pattern_mismatch" and loc[-1] == "device":
        return f"{field}: should be a device such as auto, cpu, mps, cuda or cuda:1, not {given}"
    if item["type"] == "string_pattern_mismatch":
        return f"{field}: use letters, digits, dot, dash and underscore, starting with a letter or digit, not {given}"
    expected = dict.fromkeys(str(branch["msg"]).removeprefix("Input should be ") for branch in items)
    return f"{field}: should be {' or '.join(expected)}, not {given}"


def _real_loc(loc: Sequence[int | str], data: Any) -> Loc:
    """`loc` without the names pydantic adds for the branches of a union."""
    real: list[int | str] = []
    for index, part in enumerate(loc):
        if _has(data, part):
            data = data[part]
            real.append(part)
        elif index == len(loc) - 1 and isinstance(data, dict) and str(part).isidentifier():
            real.append(part)  # a key that is missing
    return tuple(real)


def _has(data: Any, part: int | str) -> bool:
    if isinstance(data, dict):
        return part in data
    return isinstance(data, list) and isinstance(part, int) and part < len(data)


def _model_at(kind: type[BaseModel], loc: Loc) -> type[BaseModel] | None:
    """The model whose keys are at `loc`."""
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
        model = _model_in(argument)
        if model:
            return model
    return None


def _dotted(loc: Loc) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _required(kind: type[BaseModel]) -> str:
    return ", ".join(f"{name}:" for name, info in kind.model_fields.items() if info.is_required())
