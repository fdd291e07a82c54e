"""A made-up detector with random weights, and a made-up engine whose hidden states are given, for tests of serving."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from anchorscope.detectors.card import Card
from anchorscope.detectors.detector import About, KnownAnswer
from anchorscope.detectors.drift import Moments
from anchorscope.detectors.inputs import PROMPT_TOKENS, Inputs, States, confidence
from anchorscope.detectors.linear import Linear
from anchorscope.detectors.record import Verdict
from anchorscope.detectors.session import Detector, template_hash
from anchorscope.models.prompts import Prompter
from anchorscope.serve.plan import WorkerPlan
from anchorscope.serve.tap import StepBatch, Tap
from anchorscope.spans.samples import Sample
from anchorscope.study import PromptSpec, Sites
from anchorscope.study.terms import StateName
from tiny import tiny_tokenizer

LAYERS, WIDTH = 3, 8
HEARD = [StateName("clean", "mlp", position) for position in ("answer_last", "answer_mean", "prompt_last")]
NUMBERS = {"logprob_mean": -0.7, "logprob_min": 0.2, "logprob_sum": 0.1, "log_tokens": 0.3}
KNOWN = "Which river is near Hill?"


def detector_of(
    states: Sequence[StateName] = HEARD, numbers: dict[str, float] | None = None, seed: int = 0, farthest: float = 0.6
) -> Detector:
    """A linear detector of these states and numbers."""
    random = np.random.default_rng(seed)
    prompter = Prompter(tiny_tokenizer(), PromptSpec(shots=1), False)

    def drawn() -> NDArray[np.float32]:
        return random.normal(size=(LAYERS, WIDTH)).astype(np.float32)

    weights = {name: drawn() for name in states}
    moments = Moments({name: 0.3 * drawn() for name in states}, {name: 1 + 0.1 * np.abs(drawn()) for name in states},
                      farthest if states else np.inf, 40, 400)  # fmt: skip
    about = About({"dtype": "float32", "ends": [0]}, "made-up", prompter.spec.model_dump(mode="json"),
                  template_hash(prompter), "mlp", LAYERS, WIDTH)  # fmt: skip
    card = Card("combined", "made up", ["north"], 100, 100, 0.5, [0.8, 0.7, 0.9], [0.6, 0.5, 0.7],
                {"ece": 0.1, "brier": 0.2}, {}, ["anything"])  # fmt: skip
    fitted = Linear(weights, dict(NUMBERS if numbers is None else numbers), 0.1)
    return Detector(fitted, about, card, moments, 0.5, known_answers=[KnownAnswer(KNOWN, [5, 6], 0.5)])


def save(detector: Detector, path: Path) -> str:
    detector.save(path)
    return str(path)


def judged_on_whole_states(detector: Detector, sample: Sample, states: NDArray[np.float32]) -> Verdict:
    """What the detector itself says. `states` (token, layer, width), the prompt's last token first."""
    tokens = len(sample.answer.answer_ids)
    own = {
        "prompt_last": states[0],
        "answer_last": states[sample.exact_tokens],
        "answer_mean": states[1 : 1 + tokens].mean(axis=0),
    }
    held = {name: States.held(own[name.position][:, None]) for name in detector.moments.mean}
    numbers = confidence([sample.answer.logprobs])
    numbers[PROMPT_TOKENS] = np.array([float(len(sample.answer.prompt_ids))])
    return detector.judge(Inputs(["0"], ["q"], ["a"], numbers, held))[0]


class _Given(torch.nn.Module):
    """A module whose output is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given = torch.zeros(0, WIDTH)

    def forward(self) -> torch.Tensor:
        return self.given


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = _Given()


class MadeUpModel(torch.nn.Module):
    """Layers whose MLPs put out what they are given: (token, layer, width)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(_Layer() for _ in range(LAYERS))

    def forward(self, states: NDArray[np.float32]) -> None:
        for number, layer in enumerate(self.layers):
            layer.mlp.given = torch.from_numpy(np.ascontiguousarray(states[:, number]))
            layer.mlp()


@dataclass
class MadeUpEngine:
    """Steps of a made-up engine: which tokens of which request go through, and the rows that leave its worker."""

    plan: WorkerPlan
    seats: int = 16
    drafts: int = 0

    def __post_init__(self) -> None:
        self.model = MadeUpModel()
        sites = Sites(layers="layers", attn="attn", mlp="mlp")
        self.tap = Tap(self.plan, sites, self.model, self.seats, torch.float32, torch.device("cpu"), self.drafts)
        self.rows: dict[tuple[str, int], NDArray[np.float32]] = {}

    def step(self, parts: Sequence[tuple[str, int, NDArray[np.float32], Sequence[int]]], padding: int = 0) -> None:
        """One forward: of each request its name, its first position, the states and the tokens that go through."""
        states = np.concatenate([*(states for _, _, states, _ in parts), np.zeros((padding, LAYERS, WIDTH))])
        counts = [len(states) for _, _, states, _ in parts]
        tokens = torch.tensor([token for *_, own in parts for token in own] + [0] * padding)
        self.tap.begin(torch.tensor([0, *counts]).cumsum(0))
        self.model(states.astype(np.float32))
        batch = StepBatch([p[0] for p in parts], [p[1] for p in parts], counts, len(tokens), tokens)
        made = self.tap.step(batch)
        if made is not None:
            at = 0
            for part in made[0]:
                for number in range(part.rows):
                    self.rows[part.request, part.begin + number] = made[1][at + number].numpy()
                at += part.rows


Response: TypeAlias = tuple[int, dict[bytes, bytes], bytes]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


async def body_of(receive: Any) -> bytes:
    """The whole body of a request to an ASGI app."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


class Client:
    """Sends requests to an ASGI app."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def post(self, data: Any, path: str = "/v1/completions", headers: Headers = ()) -> Response:
        """Send a request, greedy where it does not say otherwise."""
        data = {"temperature": 0, **data} if isinstance(data, dict) else data
        return self.ask("POST", path, data if isinstance(data, bytes) else json.dumps(data).encode(), headers)

    def get(self, path: str) -> Response:
        return self.ask("GET", path, b"")

    def ask(self, method: str, path: str, body: bytes, headers: Headers = ()) -> Response:
        return asyncio.run(self._ask(method, path, body, headers))

    async def _ask(self, method: str, path: str, body: bytes, more: Headers) -> Response:
        sent: list[dict[str, Any]] = []
        parts = [{"type": "http.request", "body": body[:10], "more_body": True},
                 {"type": "http.request", "body": body[10:], "more_body": False}]  # fmt: skip

        async def receive() -> dict[str, Any]:
            if not parts:
                await asyncio.Event().wait()  # a client that stays
            return parts.pop(0)

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
        scope = {"type": "http", "method": method, "path": path, "headers": headers}
        await self.app(scope, receive, send)
        start = sent[0]
        return start["status"], dict(start["headers"]), b"".join(m.get("body", b"") for m in sent[1:])
