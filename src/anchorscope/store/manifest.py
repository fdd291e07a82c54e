"""What a manifest.json holds, checked when it is read: a damaged one may ask for a trillion shards."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from anchorscope.study.validation import first_problem

FORMAT = 1  # of the run directory; raised when an older one can no longer be read
MOST_SHARDS = 10**6  # of one table: each is looked at


class _TableEntry(BaseModel):
    model_config = ConfigDict(strict=True)
    rows: Annotated[int, Field(ge=0)]
    shard_rows: Annotated[int, Field(ge=1)]
    inputs: dict[str, Any]
    columns: dict[str, str] = {}
    facts: dict[str, Any] = {}
    also: list[dict[str, Any]] = []

    @model_validator(mode="after")
    def _few_shards(self) -> _TableEntry:
        if self.rows > MOST_SHARDS * self.shard_rows:
            raise ValueError(f"more than {MOST_SHARDS:,} shards")
        return self


class _Manifest(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")  # a checksum whose name is damaged is not overlooked
    format: Literal[1]
    versions: dict[str, str]
    also_written_with: list[dict[str, str]]
    tables: dict[str, _TableEntry]


def check_manifest(content: Any) -> None:
    """ValueError where it is not what a run writes, with the first field that is wrong."""
    try:
        _Manifest.model_validate(content)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
