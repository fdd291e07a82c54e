"""The tally of replicas that are alive and of what they do. It has its own process, so it imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

BEAT, SILENT = 2.0, 10.0  # seconds between two heartbeats, and seconds of silence until a replica counts as crashed


Doing = tuple[int, int, int]
"""A flow, one of its shards, and the number of samples of the shard that are done."""


class Tally:
    """Receives the heartbeats of replicas."""

    def __init__(self) -> None:
        self.heard: dict[str, float] = {}
        self.doing: dict[str, Doing | None] = {}
        self.expected = 0

    def expect(self, replicas: int) -> None:
        """Set the number of replicas that are started now. Earlier ones have ended."""
        self.heard, self.doing, self.expected = {}, {}, replicas

    def beat(self, name: str, doing: Doing | None = None) -> None:
        """Record the heartbeat of a replica."""
        self.heard[name], self.doing[name] = monotonic(), doing

    def under_way(self) -> list[Doing]:
        """What the replicas that are alive have done of their shards."""
        alive = {name for name, heard in self.heard.items() if monotonic() - heard < SILENT}
        return [doing for name, doing in self.doing.items() if doing is not None and name in alive]

    def counts(self) -> dict[str, int]:
        """The number of replicas that are alive, and the number seen beyond those that were started."""
        alive = sum(monotonic() - heard < SILENT for heard in self.heard.values())
        return {"replicas": alive, "restarted": max(0, len(self.heard) - self.expected)}


def beat(tally: Any, name: str, doing: Callable[[], Doing | None]) -> None:
    """Send heartbeats for as long as the replica lives."""
    while True:
        tally.beat.remote(name, doing())
        sleep(BEAT)
