"""The JSON record of a saved detector: its fields, their types and what must fit together.

A file may come from a stranger, or from a damaged disk. Whatever loads can judge: a number that is missing, is not
finite or has another type is refused when the file is read, and not when an answer is judged. Three numbers may be
infinite or undefined, as their fields say.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator
from safetensors.numpy import load

from anchorscope.detectors.drift import FAR, VERY_MANY
from anchorscope.detectors.inputs import NumberName
from anchorscope.study.terms import ExactRule, Into, Site
from anchorscope.study.validation import first_problem

LARGEST = 2**53  # of counts and seeds: they are compared with floats


def _finite(value: JsonValue) -> JsonValue:
    """Refuse a number that is not finite, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _finite(part)
    return value


def _not_nan(value: float) -> float:
    if math.isnan(value) or value == -math.inf:
        raise ValueError("it is not a number")
    return value


Plain = Annotated[JsonValue, AfterValidator(_finite)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Share = Annotated[float, Field(ge=0, le=1)]
Part = Annotated[float, Field(gt=0, lt=1)]
Three = Annotated[list[float], Field(min_length=3, max_length=3)]
Limit = Annotated[float, Field(allow_inf_nan=True), AfterValidator(_not_nan)]
"""A number that may be infinite, which means that nothing exceeds it."""
StateText = Annotated[str, Field(pattern=r"^[^/]+/[^/]+/[^/]+$")]


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class _FitFields(_Fields):
    numbers: dict[NumberName, float]
    bias: float


class _LinearFields(_Fields):
    form: Literal["linear"]
    fits: Annotated[list[_FitFields], Field(min_length=1)]
    chosen: dict[str, Plain]


class _MomentsFields(_Fields):
    farthest: Limit
    """Infinite for a detector that reads no states."""
    tokens: Count
    prompt: Count = VERY_MANY
    passages: bool | None = None
    numbers: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]] | None = None
    """None in files of earlier versions."""
    reads: list[NumberName] = []
    farthest_numbers: Limit = math.inf
    """Infinite for a detector that reads no numbers."""
    expected: Share = 1 - FAR


class _FingerprintFields(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    dtype: str
    ends: list[Count] | None = None

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, record: Any) -> Any:
        return _finite(record)


class _AboutFields(_Fields):
    model: _FingerprintFields
    name: str
    prompt: dict[str, Plain]
    template: str
    site: Site
    layers: Annotated[int, Field(ge=1, le=LARGEST)]
    width: Annotated[int, Field(ge=1, le=LARGEST)]
    into: Into = "after"
    exact_question: ExactRule = "content"
    seed: Annotated[int, Field(ge=-LARGEST, le=LARGEST)] = 0


class _UnflaggedFields(_Fields):
    share: Share
    wrong: Three
    base_rate: Part


class _WorstGroupFields(_Fields):
    name: str
    false_alarms: Three
    right: Count
    groups: Count


class _DecodingFields(_Fields):
    temperature: Annotated[float, Field(ge=0)]
    top_p: Annotated[float, Field(gt=0, le=1)]


class _CardFields(_Fields):
    detector: str
    title: str
    datasets: list[str]
    right: Count
    wrong: Count
    base_rate: Share
    auroc: Three
    question_auroc: Annotated[list[Annotated[float, Field(allow_inf_nan=True)]], Field(min_length=3, max_length=3)]
    """Three times NaN where the samples did not have the states of that probe."""
    calibration: dict[Literal["ece", "brier"], float]
    chosen: dict[str, Plain]
    not_for: list[str]
    decoding: _DecodingFields | None = None
    """None in files of earlier versions, which are of greedy answers."""
    unflagged: _UnflaggedFields | None = None
    worst_group: _WorstGroupFields | None = None

    @model_validator(mode="after")
    def _together(self) -> _CardFields:
        undefined = [not math.isfinite(value) for value in self.question_auroc]
        if any(undefined) and not all(map(math.isnan, self.question_auroc)):
            raise ValueError("question_auroc has a number that is not finite")
        if len(self.calibration) != 2:
            raise ValueError("calibration needs ece and brier")
        return self


class _PromiseFields(_Fields):
    kind: Literal["false_alarms", "errors_passed"]
    at_most: Part
    delta: Part = 0.1


class _ThresholdFields(_Fields):
    value: Limit | None
    """Infinite where the promise is kept without flagging anything."""
    promise: _PromiseFields
    right: Count
    wrong: Count
    bound: float
    passed: float | None
    reason: str = ""
    errors: Three | None = None
    base_rate: Part | None = None


class _PartsFields(_Fields):
    clean: StateText
    knockout: StateText
    means: list[Annotated[list[float], Field(min_length=2, max_length=2)]]


class _HeldOutFields(_Fields):
    seed: Count
    groups: list[str] = []


class DetectorRecord(_Fields):
    """Everything in a detector's JSON file but the checksums."""

    format: Literal[1, 2, 3]
    fitted: _LinearFields
    moments: _MomentsFields
    about: _AboutFields
    card: _CardFields
    base_rate: Part
    threshold: _ThresholdFields | None
    parts: _PartsFields | None
    shift: Annotated[tuple[Annotated[float, Field(gt=0)], float], Field(strict=False)]
    held_out: _HeldOutFields | None = None
    known_answers: list[Annotated[tuple[str, list[Count], float], Field(strict=False)]] = []


def check_record(record: Any) -> None:
    """Check a record that was read from JSON; ValueError with the first field that is wrong."""
    try:
        DetectorRecord.model_validate(record)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def tensors_of(content: bytes) -> dict[str, dict[str, NDArray[Any]]]:
    """The tensors of a detector's file, by what they are of; ValueError where a number is not finite."""
    parts: dict[str, dict[str, NDArray[Any]]] = {"fitted": {}, "moments": {}, "witness": {}, "held_out": {}}
    for name, tensor in load(content).items():
        owner, rest = name.split("/", 1)
        if (owner != "held_out" and tensor.dtype.kind != "f") or not np.isfinite(tensor).all():
            raise ValueError(f"{name} has a number that is not finite, or not a float")
        parts[owner][rest] = tensor
    return parts
