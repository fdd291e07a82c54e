"""Two servers loaded in turns: CPU time, throughput and latency of one over those of the other.

The server without verdicts is also asked for log-probabilities, which vLLM itself computes and a verdict may need.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from helpers.server_requests import WORKLOADS, completion
from helpers.steps import Figures
from helpers.vllm_server import VllmServer, load

LONG = ("128 tokens", 32)
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "without": ("without", {}),
    "log-probabilities": ("without", {"logprobs": 0}),
    "with": ("with", {}),
}
"""What is measured: the server, and further fields of its requests."""


def in_turns(rounds: int, model: Path, prompts: Sequence[str], servers: Mapping[str, VllmServer]) -> Figures:
    """Send each workload to both servers, in an order drawn anew, so many rounds.

    A server that is not measured stands still: vLLM spins while it waits.
    """
    draw = random.Random(0)
    cells = [(name, at_once) for name in WORKLOADS for at_once in (1, 8, 32)]
    measured: dict[tuple[str, int, str], list[Turn]] = {}
    same: Counter[str] = Counter()
    for turn in range(rounds + 1):  # the first warms up
        for name, at_once in cells:
            if (name, at_once) == LONG and turn % 2 == 0:  # it takes as long as all others: every second round
                continue
            chosen = [draw.choice(prompts) for _ in range(max(at_once, 4 if name == "answers" else 1))]
            texts: dict[str, list[str]] = {}
            for arm in draw.sample(list(ARMS), len(ARMS)):
                who, more = ARMS[arm]
                server, other = servers[who], next(servers[each] for each in servers if each != who)
                other.still()
                asked = [completion(model, prompt, **WORKLOADS[name], **more) for prompt in chosen]
                for data in asked:
                    if name != "answers":
                        data.pop("stop", None)
                cpu, front, start = server.cpu(), server.cpu(front=True), time.perf_counter()
                replies = asyncio.run(load(server.url, asked, at_once))
                wall = time.perf_counter() - start
                cpu, front = server.cpu() - cpu, server.cpu(front=True) - front
                other.again()
                texts[arm] = [reply.body["choices"][0]["text"] for reply in replies]
                if turn:
                    took = Turn(cpu, front, wall, [reply.seconds for reply in replies])
                    measured.setdefault((name, at_once, arm), []).append(took)
            same["answers"] += len(chosen)
            same["identical"] += sum(len(set(each)) == 1 for each in zip(*texts.values(), strict=True))
        print("round", turn, dict(same), flush=True)
    figures: Figures = {"greedy answers": dict(same)}
    pooled: list[float] = []
    like: list[float] = []
    for name, at_once in cells:
        own, bare, asked_too = (measured[name, at_once, arm] for arm in ("with", "without", "log-probabilities"))
        ratios = [a.cpu / b.cpu for a, b in zip(own, bare, strict=True) if b.cpu > 0]
        engine = [(a.cpu - a.front) / (b.cpu - b.front) for a, b in zip(own, bare, strict=True) if b.cpu > b.front]
        answers = sum(len(turn.seconds) for turn in own)
        pooled += ratios
        beyond = [a.cpu / b.cpu for a, b in zip(own, asked_too, strict=True) if b.cpu > 0]
        like += beyond
        figures[f"{name}, {at_once} at once"] = {
            "CPU time, ratio": _median(ratios),
            "CPU time, ratio to log-probabilities alone": _median(beyond),
            "CPU time of the engine, ratio": _median(engine),
            "front process, ms per answer more": round(
                1000 * sum(a.front - b.front for a, b in zip(own, bare, strict=True)) / answers, 2
            ),
            "engine, ms per answer more": round(
                1000 * sum(a.cpu - a.front - b.cpu + b.front for a, b in zip(own, bare, strict=True)) / answers, 2
            ),
            "all, ms per answer without": round(1000 * sum(turn.cpu for turn in bare) / answers, 2),
            "throughput, ratio": _median([b.wall / a.wall for a, b in zip(own, bare, strict=True)]),
            "p50, ratio": _ratio_of(own, bare, 50),
            "p95, ratio": _ratio_of(own, bare, 95),
        }
    return {
        **figures,
        "CPU time, ratio, all": _median(pooled),
        "CPU time, ratio to log-probabilities alone, all": _median(like),
    }


class Turn(NamedTuple):
    """One workload on one server."""

    cpu: float
    """Seconds of CPU time of all its processes."""
    front: float
    """Those of the process that speaks HTTP."""
    wall: float
    """Seconds until all answers were there."""
    seconds: list[float]
    """Of each request."""


def _median(values: Sequence[float]) -> list[float]:
    """The median with its 95 % interval, by resampling."""
    drawn = np.median(np.random.default_rng(0).choice(values, (2000, len(values))), axis=1)
    return [round(float(value), 3) for value in (np.median(values), *np.quantile(drawn, (0.025, 0.975)))]


def _ratio_of(own: Sequence[Turn], bare: Sequence[Turn], percentile: int) -> float:
    sides = [np.percentile([second for turn in side for second in turn.seconds], percentile) for side in (own, bare)]
    return round(float(sides[0] / sides[1]), 3)
