"""The tally of replicas that are alive. It has its own process, so it imports nothing heavy."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any

BEAT, SILENT = 2.0, 10.0  # seconds between two heartbeats, and seconds of silence until a replica counts as crashed


class Tally:
    """Receives the heartbeats of replicas."""

    def __init__(self) -> None:
        self.heard: dict[str, float] = {}
        self.expected = 0

    def expect(self, replicas: int) -> None:
        """Set the number of replicas that are started now. Earlier ones have ended."""
        self.heard, self.expected = {}, replicas

    def beat(self, name: str) -> None:
        """Record the heartbeat of a replica."""
        self.heard[name] = monotonic()

    def counts(self) -> dict[str, int]:
        """The number of replicas that are alive, and the number seen beyond those that were started."""
        alive = sum(monotonic() - heard < SILENT for heard in self.heard.values())
        return {"replicas": alive, "restarted": max(0, len(self.heard) - self.expected)}


def beat(tally: Any, name: str) -> None:
    """Send heartbeats for as long as the replica lives."""
    while True:
        tally.beat.remote(name)
        sleep(BEAT)
