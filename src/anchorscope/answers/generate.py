"""Greedy answers with transformers: the shared prefix computed once, finished rows let go.

All prompts of a study start with the same few-shot examples. Their keys and values are computed once and copied into
each batch, so that only the question and the answer cost anything. Rows are padded on the left, between the prefix and
the question, and masked; positions count real tokens only, so a row's answer does not depend on its batch beyond the
rounding of the dtype: in float32 the tokens are the same, in bfloat16 nearly all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from anchorscope.errors import ModelError
from anchorscope.models.batches import plan_batches
from anchorscope.models.heap import give_back
from anchorscope.models.load import Model, end_tokens
from anchorscope.models.prefix import compute_prefix

KEEP = 0.75  # rows are let go once this share or less is still being written: a copy of the cache costs too


@dataclass(frozen=True)
class Generated:
    """The tokens a model answered with, up to the end of the first line."""

    ids: list[int]
    """Its tokens."""
    logprobs: list[float]
    """Log-probability (natural) of each."""
    ended: bool
    """Whether it ended by itself, not by the limit on its length."""


class _RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values with room for what is to come, so that a step writes in place instead of copying them all."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, rows: int, room: int) -> None:
        super().__init__()
        self.length = keys.shape[2]
        self._keys, self._values = (_with_room(shared, rows, room) for shared in (keys, values))
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True  # what transformers looks at
        self._expose()

    def _expose(self) -> None:
        self.keys, self.values = self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        end = self.length + key_states.shape[2]
        self._keys[:, :, self.length : end], self._values[:, :, self.length : end] = key_states, value_states
        self.length = end
        self._expose()
        return self.keys, self.values

    def select(self, rows: torch.Tensor) -> None:
        self._keys, self._values = (t[rows.to(t.device)] for t in (self._keys, self._values))
        self._expose()


def _with_room(shared: torch.Tensor, rows: int, room: int) -> torch.Tensor:
    """(row, head, token, width): the shared tokens, (1, head, token, width), in every row, and room behind them."""
    _, heads, length, width = shared.shape
    roomy = shared.new_empty(rows, heads, length + room, width)
    roomy[:, :, :length] = shared
    return roomy


class Generator:
    """Answers prompts that share a prefix, with one model."""

    def __init__(self, model: Model, shared_ids: Sequence[int], max_new_tokens: int, batch_tokens: int) -> None:
        self.model, self.max_new_tokens, self.batch_tokens = model, max_new_tokens, batch_tokens
        self.shared_ids = list(shared_ids)
        self.stops = stop_tokens(model).to(model.device)
        self._prefix = compute_prefix(model, self.shared_ids)

    def __call__(self, prompts: Sequence[Sequence[int]]) -> list[Generated]:
        """Answer each prompt. Every prompt starts with the shared ids and goes on after them."""
        shared = len(self.shared_ids)
        self._check(prompts, self.max_new_tokens)
        answers: dict[int, Generated] = {}
        for batch in self.plan([len(prompt) for prompt in prompts]):
            answers.update(zip(batch, self._batch([prompts[row][shared:] for row in batch]), strict=True))
            give_back()
        return [answers[row] for row in range(len(prompts))]

    def score(self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> list[list[float]]:
        """The log-probability of each token of given answers."""
        shared = len(self.shared_ids)
        self._check(prompts, max((len(answer) for answer in answers), default=0))
        whole = [[*prompt[shared:], *answer] for prompt, answer in zip(prompts, answers, strict=True)]
        scores: dict[int, list[float]] = {}
        for batch in self.plan([shared + len(row) for row in whole]):
            lengths = [len(answers[row]) for row in batch]
            scores.update(zip(batch, self._score_batch([whole[row] for row in batch], lengths), strict=True))
            give_back()
        return [scores[row] for row in range(len(prompts))]

    def _check(self, prompts: Sequence[Sequence[int]], more: int) -> None:
        """Every prompt starts with the shared ids, goes on after them, and fits into the model with its answer."""
        shared = len(self.shared_ids)
        limit = getattr(self.model.network.config.get_text_config(), "max_position_embeddings", None)
        for prompt in prompts:
            if list(prompt[:shared]) != self.shared_ids or len(prompt) == shared:
                raise ValueError("a prompt does not start with the shared prefix")
            if limit is not None and len(prompt) + more > limit:
                size = len(prompt) + more
                raise ModelError(
                    f"{self.model.name} reads {limit} tokens at most, and a prompt with its answer has {size}",
                    "Give fewer shots, or shorter contexts.",
                )

    @torch.inference_mode()
    def _score_batch(self, rows: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[list[float]]:
        ids, mask, positions = self._lay_out(rows)
        longest = max(lengths)
        output = self.model.network(
            ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache(len(rows), ids.shape[1]),
            use_cache=True,
            logits_to_keep=longest + 1,
        )
        # rows end together, so the last logits but one are those before the last token
        logprobs = output.logits[:, :-1].float().log_softmax(dim=-1)
        wanted = ids[:, ids.shape[1] - longest :].to(logprobs.device)
        picked = logprobs[:, logprobs.shape[1] - longest :].gather(2, wanted[:, :, None])[:, :, 0].tolist()
        return [values[longest - length :] for values, length in zip(picked, lengths, strict=True)]

    def plan(self, lengths: Sequence[int]) -> list[list[int]]:
        """The batches of prompts of these lengths."""
        own = [length - len(self.shared_ids) for length in lengths]
        # a sliding window is counted in cache slots; where it matters, no row may hold a padded slot
        window, longest = self.model.window, max(lengths, default=0) + self.max_new_tokens
        fits = window is None or longest <= window
        # a padded slot that sees nothing at all is not a number in eager's softmax, which casts float64 to float32
        wide = self.model.attention == "eager" and self.model.network.dtype == torch.float64
        return plan_batches(
            own, self.batch_tokens, lambda tokens: tokens + self.max_new_tokens, padding=fits and not wide
        )

    @torch.inference_mode()
    def _batch(self, rows: Sequence[Sequence[int]]) -> list[Generated]:
        ids, mask, positions = self._lay_out(rows)
        steps = _Steps(self, self._cache(len(rows), ids.shape[1] + self.max_new_tokens), mask)
        return steps.run(ids, positions)

    def _lay_out(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids (rows, width), mask (rows, shared + width) and positions (rows, width), padded on the left."""
        device, shared = self.model.device, len(self.shared_ids)
        width = max(len(row) for row in rows)
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.ones(len(rows), shared + width, dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, width - len(row) :] = torch.tensor(row)
            mask[i, shared : shared + width - len(row)] = 0
        positions = (mask.cumsum(1) - 1)[:, shared:].clamp(min=0)
        return ids.to(device), mask.to(device), positions.to(device)

    def _cache(self, rows: int, room: int) -> Any:
        if not self._prefix:
            return DynamicCache()
        return Cache(layers=[_RoomyLayer(keys, values, rows, room) for keys, values in self._prefix])


class _Steps:
    """One batch, token by token."""

    def __init__(self, generator: Generator, cache: Any, mask: torch.Tensor) -> None:
        self.generator, self.cache, self.mask = generator, cache, mask

    def run(self, ids: torch.Tensor, positions: torch.Tensor) -> list[Generated]:
        rows = ids.shape[0]
        tokens: list[list[int]] = [[] for _ in range(rows)]
        logprobs: list[list[float]] = [[] for _ in range(rows)]
        ended = [False] * rows
        alive = list(range(rows))
        for step in range(self.generator.max_new_tokens + 1):
            chosen, logprob = self._forward(ids, positions)
            stop = self.generator.stops[chosen].tolist()
            for i, (row, token, value) in enumerate(zip(alive, chosen.tolist(), logprob.tolist(), strict=True)):
                ended[row] = ended[row] or stop[i]
                if not ended[row] and step < self.generator.max_new_tokens:
                    tokens[row].append(token)
                    logprobs[row].append(value)
            left = [i for i, row in enumerate(alive) if not ended[row]]
            if not left or step == self.generator.max_new_tokens:
                break
            ids, positions = chosen[:, None], positions[:, -1:] + 1
            if len(left) <= KEEP * len(alive):
                ids, positions = self._let_go(left, ids, positions)
                alive = [alive[i] for i in left]
            self.mask = torch.cat([self.mask, self.mask.new_ones(len(alive), 1)], dim=1)
        return [Generated(*each) for each in zip(tokens, logprobs, ended, strict=True)]

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The most likely next token of each row, and its log-probability."""
        output = self.generator.model.network(
            ids,
            attention_mask=self.mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits = output.logits[:, -1].float()
        best = logits.max(dim=-1)
        if not torch.isfinite(best.values).all():
            raise ModelError(
                f"{self.generator.model.name}: what it predicts is not a number",
                "Examine it with: anchorscope doctor MODEL --dtype float32",
            )
        chosen = best.indices.to(self.mask.device)
        return chosen, (best.values - logits.logsumexp(dim=-1)).to(self.mask.device)

    def _let_go(self, left: list[int], ids: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keep = torch.tensor(left, device=self.mask.device)
        for layer in self.cache.layers:
            layer.select(keep) if isinstance(layer, _RoomyLayer) else layer.batch_select_indices(keep.to(layer.device))
        self.mask = self.mask[keep]
        return ids[keep], positions[keep]


def stop_tokens(model: Model) -> torch.Tensor:
    """Which tokens end an answer: those that hold a line end, and the ends of text. Shape (vocabulary,)."""
    size = model.network.get_output_embeddings().weight.shape[0]
    stops = torch.zeros(size, dtype=torch.bool)
    known = min(size, len(model.tokenizer))  # either may have spare entries
    for first in range(0, known, 4096):
        block = range(first, min(first + 4096, known))
        for token, text in zip(block, model.tokenizer.batch_decode([[token] for token in block]), strict=True):
            stops[token] = "\n" in text
    for token in end_tokens(model.network, model.tokenizer):
        stops[token] = True
    return stops
