"""Who hears from replicas that they are alive. It imports nothing heavy: it has a process of its own."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any

BEAT, SILENT = 2.0, 10.0  # seconds between two signs of life, and without one until a replica counts as dead


class Tally:
    """Hears from replicas that they are alive."""

    def __init__(self) -> None:
        self.heard: dict[str, float] = {}
        self.expected = 0

    def expect(self, replicas: int) -> None:
        """So many replicas are started now, and those of before have ended."""
        self.heard, self.expected = {}, replicas

    def beat(self, name: str) -> None:
        """A replica is alive."""
        self.heard[name] = monotonic()

    def counts(self) -> dict[str, int]:
        """How many are alive now, and how many more were heard of than were started."""
        alive = sum(monotonic() - heard < SILENT for heard in self.heard.values())
        return {"replicas": alive, "restarted": max(0, len(self.heard) - self.expected)}


def beat(tally: Any, name: str) -> None:
    """Tell that a replica is alive, as long as it is."""
    while True:
        tally.beat.remote(name)
        sleep(BEAT)
