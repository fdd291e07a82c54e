"""Samples on which the model fails are set aside with their reason, and the run goes on without them.

A shard's samples are tried together, as planned. Where that fails twice, or processes died over it, each is tried
alone, and those that fail again are set aside. The others then go through together: what a shard holds depends on
which samples are set aside, never on how often it was tried, or where.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from anchorscope.errors import DeviceError, GradeError, HubError, StoreError, reason_of
from anchorscope.store.files import write_text
from anchorscope.store.table import Aside, Table

T = TypeVar("T")
M = TypeVar("M")

TRIES = 2  # of a shard as planned, in one process
CRASHED = 3  # processes that crashed over a shard, and then its samples are tried alone
ALONE = 2  # processes that died over one sample alone, and then it is set aside
TOGETHER = 2  # processes that died over all that go through alone, and then the run stops
LESS = "Likely it has too little memory: lower traces.memory or answers.batch_tokens."
NOT_THE_SAMPLE = (StoreError, GradeError, HubError, NotImplementedError)


@dataclass
class _Tried:
    """What is known of a shard that is under way; kept beside it until it is done, so that a death is noticed."""

    begun: int = 0
    """How many processes began it."""
    alone: str | None = None
    """The sample that is tried alone."""
    died: dict[str, int] = field(default_factory=dict)
    """How many processes died over a sample alone."""
    together: int = 0
    """How many processes put all that go through alone through together."""


@dataclass(frozen=True)
class Guard(Generic[T]):
    """Carries out the work of a shard, sparing the run the samples on which it fails."""

    table: Table[Any]
    name: Callable[[T], str]
    """The id of a sample's question."""

    def __call__(self, shard: int, samples: Sequence[T], work: Callable[[Sequence[T]], M]) -> tuple[M, list[Aside]]:
        """What the work makes of the samples, or of those that are not set aside; and which are."""
        path = self.table.folder / f".{self.table.path(shard).name}.tried"
        tried = _read(path)
        if tried.alone is not None:
            tried.died[tried.alone] = tried.died.get(tried.alone, 0) + 1
        tried.begun, tried.alone = tried.begun + 1, None
        write_text(path, json.dumps(asdict(tried)))
        try:
            outcome = self._tried(shard, samples, work, tried, path)
        except DeviceError:  # a death: its process can only end
            raise
        except BaseException:  # what raises is none
            path.unlink(missing_ok=True)
            raise
        path.unlink(missing_ok=True)
        return outcome

    def _tried(
        self, shard: int, samples: Sequence[T], work: Callable[[Sequence[T]], M], tried: _Tried, path: Path
    ) -> tuple[M, list[Aside]]:
        # 1. all together, as planned
        failure: Exception | None = None
        for _ in range(TRIES if tried.begun <= CRASHED else 0):
            try:
                return work(samples), []
            except NOT_THE_SAMPLE:
                raise
            except Exception as error:  # noqa: BLE001 whatever a model raises on a sample
                _check_device(error)
                failure = error
        # 2. each alone
        aside = []
        for sample in samples:
            name = self.name(sample)
            if tried.died.get(name, 0) >= ALONE:
                aside.append(Aside(name, "the process died over it"))
                continue
            write_text(path, json.dumps(asdict(tried) | {"alone": name}))
            try:
                work([sample])
            except NOT_THE_SAMPLE:
                raise
            except Exception as error:  # noqa: BLE001
                _check_device(error)
                failure = failure or error
                aside.append(Aside(name, reason_of(error)))
        # 3. the others together; where none fails alone, or all of several do, it is not the samples
        if failure is not None and (not aside or len(aside) == len(samples) > 1):
            raise failure
        if len(aside) == len(samples) > 1:
            raise StoreError(f"{self.table.path(shard)}: every sample crashes the process", LESS)
        if tried.together >= TOGETHER:
            raise StoreError(f"{self.table.path(shard)}: samples work one by one but not together", LESS)
        tried.together += 1
        write_text(path, json.dumps(asdict(tried)))
        names = {failed.id for failed in aside}
        return work([sample for sample in samples if self.name(sample) not in names]), aside


def _check_device(error: Exception) -> None:
    """Raise where torch says that a GPU is lost: then all samples fail, and none of them is to blame."""
    if any(kind.__name__ == "AcceleratorError" for kind in type(error).__mro__):  # by name: no torch in this room
        raise DeviceError(
            f"the GPU stopped responding in this process ({reason_of(error)})",
            "Run the same command again: the run resumes where it stopped, and finds the sample that causes this.",
        ) from error


def _read(path: Path) -> _Tried:
    try:
        return _Tried(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return _Tried()
