"""Worker side: hooks compute the numbers of a plan for every token. torch.compile and CUDA graphs accept them.

Before the model is compiled, each site's module gets a buffer and a forward hook that calls one custom op. The op
copies the states of the tokens that may be wanted. After a forward pass, all layers are read at once. A row is keyed
by its request and its absolute position in the text and may be written twice, so chunked prefill, preemption and
rejected drafts need no further care. The mean state of an answer is a running sum for each request.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from anchorscope.serve.plan import SiteColumns, WorkerPlan
from anchorscope.study import Sites

FLOOR = 1e-12  # as in detectors/drift.py
KEPT, ROWS, STREAM = "anchorscope_kept", "anchorscope_rows", "anchorscope_stream"

# torch.library.custom_op has eight times the overhead of this
_LIBRARY: Any = torch.library.Library("anchorscope", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("keep(Tensor x, Tensor rows, Tensor(a!) kept) -> ()")


def _keep(x: torch.Tensor, rows: torch.Tensor, kept: torch.Tensor) -> None:
    """Copy the states of all tokens if they fit (decoding, CUDA graphs), else only those of each request's last."""
    if x.shape[0] <= kept.shape[0]:
        kept[: x.shape[0]].copy_(x)
    else:
        torch.index_select(x, 0, rows, out=kept)


_LIBRARY.impl("keep", _keep, "CompositeExplicitAutograd")
_LIBRARY._register_fake("keep", lambda x, rows, kept: None)


def _hook(module: Any, args: Any, output: Any) -> None:
    x = output[0] if isinstance(output, tuple) else output
    if getattr(module, STREAM) and isinstance(output, tuple) and len(output) > 1 and output[1] is not None:
        x = x + output[1]  # vLLM's layers return the last block's output and the residual stream before it
    torch.ops.anchorscope.keep(x, getattr(module, ROWS), getattr(module, KEPT))


class StepBatch(NamedTuple):
    """The tokens of one forward pass, in its order. The adapter builds it."""

    requests: Sequence[str]
    starts: Sequence[int]
    """Position of each request's first token of this pass, in the request's text."""
    counts: Sequence[int]
    """Number of tokens of each request in this pass."""
    padded: int
    """Number of tokens of the pass, including padding for a CUDA graph."""
    tokens: torch.Tensor
    """(token): token ids."""


class Part(NamedTuple):
    """Consecutive rows of one request."""

    request: str
    begin: int
    """Position of the first row in the request's text."""
    rows: int


@dataclass
class _Request:
    """State of a request between steps."""

    prompt: int
    """Number of tokens of the prompt."""
    seat: int | None = None
    """Row of the request in the running sums."""
    summed: int = -1
    """Last position that is part of the sum."""
    drafts: list[tuple[int, list[torch.Tensor]]] = field(default_factory=list)
    """Position and state at each site of the last step's tokens that may still be rejected."""


class _SiteTap:
    """Buffers, weights and running sums of answers for one site."""

    def __init__(
        self, site: SiteColumns, layers: list[int], buffers: list[torch.Tensor], seats: int, device: torch.device
    ) -> None:
        def part(array: Any) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).float().to(device)

        self.buffers = buffers
        self.weight = part(site.weight[layers])  # (layer, width, read)
        self.scale = part(site.scale[:, layers])  # (far, layer, width)
        self.shift = -part(site.mean[:, layers]) * self.scale
        self.means = site.means
        self.tokens = len(site.far) - site.means
        shape = (seats, len(layers), site.weight.shape[1]) if site.means else (0, 0, 0)
        self.sums = torch.zeros(shape, dtype=torch.float32, device=device)

    def states(self, at: torch.Tensor) -> torch.Tensor:
        """(layer, row, width) in float32, for any dtype of the model."""
        return torch.stack([buffer.index_select(0, at) for buffer in self.buffers]).float()

    def columns(self, x: torch.Tensor, means: torch.Tensor | None) -> torch.Tensor:
        """(row, column), summed over this pipeline stage's layers. `means`: (layer, row, width), mean answer states."""
        parts = [torch.bmm(x, self.weight).sum(0)]
        for number in range(self.tokens):
            parts.append(self._far(x, number))
        for number in range(self.tokens, self.tokens + self.means):
            parts.append(self._far(x if means is None else means, number))
        return torch.cat(parts, 1)

    def _far(self, x: torch.Tensor, number: int) -> torch.Tensor:
        """(row, 1): the sum over layers of the log of the mean square of standardised states."""
        z = torch.addcmul(self.shift[number][:, None], x, self.scale[number][:, None])
        square: torch.Tensor = torch.linalg.vector_norm(z, dim=-1).square_().div_(x.shape[-1])
        return square.add_(FLOOR).log_().sum(0)[:, None]


def module_at(model: torch.nn.Module, path: str) -> torch.nn.Module:
    """Find a module by its path, also in a model inside a wrapper."""
    for prefix in ("", "language_model."):
        try:
            return model.get_submodule(prefix + path)
        except AttributeError:
            continue
    raise AttributeError(f"the model has no module {path}")


class Tap:
    """Hooks of one worker, and its state of the running requests."""

    def __init__(
        self,
        plan: WorkerPlan,
        sites: Sites,
        model: torch.nn.Module,
        seats: int,
        dtype: torch.dtype,
        device: torch.device,
        drafts: int = 0,
    ) -> None:
        """`seats`: maximum number of tokens decoded at once, including drafts; `drafts`: maximum per request."""
        self.plan, self.seats, self.last_tokens = plan, seats, 1 + drafts
        self.rows = torch.zeros(seats, dtype=torch.long, device=device)
        self.requests: dict[str, _Request] = {}
        self.free = list(range(seats))
        self.sites: list[_SiteTap] = []
        layers = list(module_at(model, sites.layers).children())
        if len(layers) != plan.layers:
            raise ValueError(f"the model has {len(layers)} layers, but the detector was fitted for {plan.layers}")
        for site, own in plan.sites.items():
            here, kept = [], []
            for number, layer in enumerate(layers):
                if type(layer).__name__ == "PPMissingLayer":  # it belongs to another pipeline stage
                    continue
                module = layer if site == "resid" else layer.get_submodule(sites.attn if site == "attn" else sites.mlp)
                if hasattr(module, KEPT):
                    raise ValueError(f"two sites are the same module: {site}")
                # a tensor for each layer: views of one would alias in a compiled graph
                kept.append(torch.zeros(seats, plan.width, dtype=dtype, device=device))
                module.register_buffer(KEPT, kept[-1], persistent=False)
                module.register_buffer(ROWS, self.rows, persistent=False)
                setattr(module, STREAM, site == "resid")
                module.register_forward_hook(_hook)
                here.append(number)
            self.sites.append(_SiteTap(own, here, kept, seats, device))

    def begin(self, bounds: torch.Tensor | None) -> None:
        """Set the rows of each request's last tokens before a forward pass. Only these are kept if not all tokens fit.

        `bounds`: first row of each request, followed by the number of rows.
        """
        if bounds is None:
            return
        if self.last_tokens == 1:
            last = bounds[1:].to(torch.long) - 1
        else:
            edges = bounds.tolist()
            pairs = itertools.pairwise(edges)
            last = torch.tensor([row for start, end in pairs for row in range(max(start, end - self.last_tokens), end)])
        if len(last) <= self.seats:
            self.rows.zero_()  # a stale index of a larger batch would be out of range and crash the engine
            self.rows[: len(last)].copy_(last, non_blocking=True)

    def arrived(self, prompts: Mapping[str, int]) -> None:
        """Register new requests with the number of tokens of their prompts."""
        for request, prompt in prompts.items():
            if request not in self.requests:
                self.requests[request] = _Request(prompt)

    def left(self, requests: Sequence[str]) -> None:
        """Forget requests that have ended."""
        for name in requests:
            gone = self.requests.pop(name, None)
            if gone is not None and gone.seat is not None:
                self.free.append(gone.seat)

    def step(self, batch: StepBatch) -> tuple[list[Part], torch.Tensor] | None:
        """Compute the rows after a forward pass, on the device. The last column is the token id."""
        parts, at, flat = self._wanted(batch)
        if not at:
            return None
        device = self.rows.device
        index = torch.tensor(at, device=device)
        states = [site.states(index) for site in self.sites]
        means = self._means(batch, parts, states)
        read = [site.columns(x, mean) for site, x, mean in zip(self.sites, states, means, strict=True)]
        # the token id tells the row of a rejected draft from the row that replaces it; float32 is exact below 2**24
        tokens = batch.tokens.index_select(0, torch.tensor(flat, device=batch.tokens.device)).to(device).float()
        return parts, torch.cat([*read, tokens[:, None]], 1)

    def _wanted(self, batch: StepBatch) -> tuple[list[Part], list[int], list[int]]:
        """Rows of answers and of prompts' last tokens: their requests, and their indices in buffers and pass."""
        every = max(sum(batch.counts), batch.padded) <= self.seats
        parts: list[Part] = []
        at: list[int] = []
        flat: list[int] = []
        offset = packed = 0
        for name, start, count in zip(batch.requests, batch.starts, batch.counts, strict=True):
            known = self.requests.get(name)
            last = count if every else min(count, self.last_tokens)  # number of its tokens that are kept
            packed += last
            if known is not None:
                begin = max(start + count - last, known.prompt - 1)
                size = start + count - begin
                if size > 0:
                    parts.append(Part(name, begin, size))
                    flat.extend(range(offset + count - size, offset + count))
                    at.extend(range(packed - size, packed))
            offset += count
        return parts, at, flat

    # --- the answer's mean state

    def _means(
        self, batch: StepBatch, parts: Sequence[Part], states: Sequence[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """By site, (layer, row, width): mean state of the answer up to each row, or None if no detector needs it."""
        if not any(site.means for site in self.sites):
            return [None] * len(self.sites)
        starts = dict(zip(batch.requests, batch.starts, strict=True))
        weights = torch.zeros(len(states[0][0]))
        means: list[torch.Tensor | None] = [
            torch.full_like(x, torch.nan) if site.means else None for site, x in zip(self.sites, states, strict=True)
        ]
        single: list[tuple[int, int]] = []  # row and seat of requests with one new token, the usual case
        row = 0
        for part in parts:
            known = self.requests[part.request]
            self._settle(known, starts[part.request])
            fresh = [
                (row + number, part.begin + number)
                for number in range(part.rows)
                if part.begin + number >= known.prompt
            ]
            row += part.rows
            if not fresh:
                continue
            if known.seat is None:
                if not self.free:
                    continue  # no seat is free, so its mean stays NaN and its verdict is cannot say
                known.seat, known.summed = self.free.pop(), known.prompt - 1
                for site in self.sites:
                    if site.means:
                        site.sums[known.seat].zero_()
            if len(fresh) == 1 and fresh[0][1] == known.summed + 1:
                single.append((fresh[0][0], known.seat))
                known.summed += 1
                weights[fresh[0][0]] = 1 / (known.summed - known.prompt + 1)
            else:
                self._drafted(known, fresh, states, means)
        if single:
            rows = torch.tensor([each for each, _ in single], device=self.rows.device)
            seats = torch.tensor([seat for _, seat in single], device=self.rows.device)
            share = weights.to(self.rows.device)[rows][None, :, None]
            for site, x, mean in zip(self.sites, states, means, strict=True):
                if mean is not None:
                    site.sums.index_add_(0, seats, x[:, rows].transpose(0, 1))
                    mean[:, rows] = site.sums.index_select(0, seats).transpose(0, 1) * share
        return means

    def _settle(self, known: _Request, start: int) -> None:
        """Add the accepted drafts of the last step to the sum. This step begins after them."""
        for position, states in known.drafts:
            if position < start and position == known.summed + 1 and known.seat is not None:
                for site, x in zip(self.sites, states, strict=True):
                    if site.means:
                        site.sums[known.seat] += x
                known.summed = position
        known.drafts = []

    def _drafted(
        self,
        known: _Request,
        fresh: Sequence[tuple[int, int]],
        states: Sequence[torch.Tensor],
        means: Sequence[torch.Tensor | None],
    ) -> None:
        """Hold several new tokens, some of which may be rejected, until the next step shows which were accepted."""
        ahead = [torch.zeros_like(x[:, 0]) for x in states]
        expected = known.summed + 1
        for row, position in fresh:
            if position != expected:  # it was read before (a preempted request), or a token was missed
                continue
            expected += 1
            token_states = []
            for number, (site, x) in enumerate(zip(self.sites, states, strict=True)):
                ahead[number] = ahead[number] + x[:, row]
                token_states.append(x[:, row].clone())
                mean = means[number]
                if mean is not None and known.seat is not None:
                    mean[:, row] = (site.sums[known.seat] + ahead[number]) / (position - known.prompt + 1)
            known.drafts.append((position, token_states))
