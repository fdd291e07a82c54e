"""Answers with transformers, greedy or drawn: the shared prefix computed once, finished rows let go.

All prompts of a study start with the same few-shot examples. Their keys and values are computed once and copied into
each batch, so that only the question and the answer cost anything. Rows are padded on the left, between the prefix and
the question, and masked; positions count real tokens only, so a row's answer does not depend on its batch beyond the
rounding of the dtype: in float32 the tokens are the same, in bfloat16 nearly all.

Where several answers to a prompt are drawn, its own tokens are computed once too, and then stand in as many rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from anchorscope.errors import ModelError
from anchorscope.models.batches import plan_batches
from anchorscope.models.heap import give_back
from anchorscope.models.load import Model, end_tokens
from anchorscope.models.prefix import compute_prefix
from anchorscope.progress import Advance, uncounted

KEEP = 0.75  # rows are let go once this share or less is still being written: a copy of the cache costs too
DRAWN = 2**22  # probabilities that are summed up at a time where tokens are drawn: 32 MB
LIKELIEST = 1024  # tokens among which the end of `top_p` is looked for first: sorting a whole vocabulary costs more
COLDEST = 1e-30  # a lower temperature is taken for this one: logits divided by it are still numbers


@dataclass(frozen=True)
class Generated:
    """The tokens a model answered with, up to the end of the first line."""

    ids: list[int]
    logprobs: list[float]
    """Log-probability (natural) of each under the model, whatever the temperature it was drawn at."""
    ended: bool
    """Whether it ended by itself, not by the limit on its length."""


class Heard(Protocol):
    """Someone who follows a model while it answers, forward by forward: traces/listening.py."""

    def start(self, rows: Sequence[int]) -> None:
        """A batch begins: the number of each of its prompts in the call."""

    def step(self, slots: Mapping[int, int]) -> None:
        """A forward was made: for each row of the batch that is still being written, which row of the forward it is.

        The first of a batch reads the prompts, which all end in its last column; each later one reads a token that
        belongs to the answer. A row that has ended is not named again, though it may be computed a while longer.
        """

    def end(self) -> None:
        """The batch is answered. Its rows were named once for the prompt, and once for each token of the answer."""


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

    def __call__(
        self, prompts: Sequence[Sequence[int]], heard: Heard | None = None, *, advance: Advance = uncounted
    ) -> list[Generated]:
        """Answer each prompt. Every prompt starts with the shared ids and goes on after them."""
        shared = len(self.shared_ids)
        self._check(prompts, self.max_new_tokens)
        answers: dict[int, Generated] = {}
        for batch in self.plan([len(prompt) for prompt in prompts]):
            if heard is not None:
                heard.start(batch)
            answers.update(zip(batch, self._batch([prompts[row][shared:] for row in batch], heard), strict=True))
            if heard is not None:
                heard.end()
            advance(len(batch))
            give_back()
        return [answers[row] for row in range(len(prompts))]

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        answers: int,
        temperature: float,
        keys: Sequence[str],
        *,
        top_p: float = 1.0,
        first: int = 0,
        advance: Advance = uncounted,
    ) -> list[list[Generated]]:
        """So many answers to each prompt, drawn at a temperature; the prompt's own tokens are computed once.

        Below 1, `top_p` limits each draw to the most likely tokens that together have this probability at the
        temperature. What is drawn depends on the prompt's key and the answer's number, which is counted from `first`,
        not on the batch. Log-probabilities are those of the model itself, at temperature 1 and among all tokens, as
        greedy answers have them.
        """
        check_sampling(answers, temperature, top_p, len(keys) == len(prompts))
        shared = len(self.shared_ids)
        self._check(prompts, self.max_new_tokens)
        steps = self.max_new_tokens + 1
        by_row: dict[int, list[Generated]] = {}
        for batch in self.plan([len(prompt) for prompt in prompts], answers):
            points = [uniforms(keys[row], first + n, steps) for row in batch for n in range(answers)]
            draws = _Draws(temperature, top_p, torch.from_numpy(np.stack(points)))
            drawn = self._sample_batch([prompts[row][shared:] for row in batch], answers, draws)
            by_row.update({row: drawn[i * answers : (i + 1) * answers] for i, row in enumerate(batch)})
            advance(len(batch))
            give_back()
        return [by_row[row] for row in range(len(prompts))]

    def score(
        self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], *, advance: Advance = uncounted
    ) -> list[list[float]]:
        """The log-probability of each token of given answers."""
        shared = len(self.shared_ids)
        self._check(prompts, max((len(answer) for answer in answers), default=0))
        whole = [[*prompt[shared:], *answer] for prompt, answer in zip(prompts, answers, strict=True)]
        scores: dict[int, list[float]] = {}
        for batch in self.plan([shared + len(row) for row in whole]):
            lengths = [len(answers[row]) for row in batch]
            scores.update(zip(batch, self._score_batch([whole[row] for row in batch], lengths), strict=True))
            advance(len(batch))
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
                    f"{self.model.name} reads at most {limit} tokens, but a prompt with its answer has {size}",
                    "Set fewer `shots`, or give shorter contexts.",
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

    def plan(self, lengths: Sequence[int], answers: int = 1) -> list[list[int]]:
        """The batches of prompts of these lengths, each to be answered so many times."""
        own = [length - len(self.shared_ids) for length in lengths]
        # a sliding window is counted in cache slots; where it matters, no row may hold a padded slot
        window, longest = self.model.window, max(lengths, default=0) + self.max_new_tokens
        fits = window is None or longest <= window
        # a padded slot that sees nothing at all is not a number in eager's softmax, which casts float64 to float32
        wide = self.model.attention == "eager" and self.model.network.dtype == torch.float64
        return plan_batches(
            own, self.batch_tokens, lambda tokens: answers * (tokens + self.max_new_tokens), padding=fits and not wide
        )

    @torch.inference_mode()
    def _batch(self, rows: Sequence[Sequence[int]], heard: Heard | None) -> list[Generated]:
        ids, mask, positions = self._lay_out(rows)
        steps = _Steps(self, self._cache(len(rows), ids.shape[1] + self.max_new_tokens), mask)
        logits = steps.forward(ids, positions)
        if heard is not None:
            heard.step({row: row for row in range(len(rows))})
        return steps.run(*steps.choose(logits, range(len(rows)), 0), positions, heard)

    @torch.inference_mode()
    def _sample_batch(self, rows: Sequence[Sequence[int]], answers: int, draws: _Draws) -> list[Generated]:
        """The answers to the first prompt, then those to the second, and so on."""
        ids, mask, positions = self._lay_out(rows)
        size = ids.shape[1] + self.max_new_tokens
        prompted = _Steps(self, self._cache(len(rows), size), mask)
        logits = prompted.forward(ids, positions)
        of = torch.arange(len(rows)).repeat_interleave(answers)  # each answer's prompt
        together = max(1, self.batch_tokens // size)  # more than a batch has, unless one prompt is asked alone
        generated: list[Generated] = []
        for part, points in zip(torch.split(of, together), torch.split(draws.uniforms, together), strict=True):
            steps = prompted.again(part, replace(draws, uniforms=points))
            first = steps.choose(logits[part.to(logits.device)], range(len(part)), 0)
            generated += steps.run(*first, positions[part.to(positions.device)])
        return generated

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


@dataclass(frozen=True)
class _Draws:
    """How tokens are drawn, instead of taking the most likely one."""

    temperature: float
    """Logits are divided by it."""
    top_p: float
    """Probability that the most likely tokens must reach together; no other token is drawn."""
    uniforms: torch.Tensor
    """Where in the distribution each row's token lies at each step: (row, step), from 0 to below 1."""

    def __call__(self, logits: torch.Tensor, rows: Sequence[int], step: int) -> torch.Tensor:
        """The next token of these rows. Some at a time: sums over a vocabulary take more room than logits."""
        at = max(1, DRAWN // logits.shape[1])
        parts = zip(torch.split(logits, at), torch.split(self.uniforms[list(rows), step], at), strict=True)
        return torch.cat([draw(*part, self.temperature, self.top_p) for part in parts])


def check_sampling(answers: int, temperature: float, top_p: float, keyed: bool) -> None:
    """Refuse what no answer can be drawn from."""
    if not (temperature > 0 and 0 < top_p <= 1 and answers >= 1 and keyed):
        raise ValueError(
            "sampling needs a temperature above 0, a top_p above 0 and at most 1, at least one answer, and a key for "
            "each prompt"
        )


def draw(logits: torch.Tensor, uniforms: torch.Tensor, temperature: float, top_p: float = 1.0) -> torch.Tensor:
    """The token at which the summed probabilities of each row first exceed its number between 0 and 1."""
    device = logits.device
    if device.type == "mps":  # it has no float64
        logits = logits.cpu()
    probabilities = nucleus((logits / max(temperature, COLDEST)).softmax(dim=-1), top_p)
    summed = probabilities.cumsum(dim=-1, dtype=torch.float64)
    points = uniforms.to(summed)[:, None] * summed[:, -1:]  # of what they really sum up to
    tokens = torch.searchsorted(summed, points, right=True).clamp(max=logits.shape[1] - 1)
    # a sum made in parallel may dip by its rounding: a token that cannot be is never taken
    possible = probabilities.gather(1, tokens) > 0
    if not possible.all():
        tokens = torch.where(possible, tokens, probabilities.argmax(dim=-1, keepdim=True))
    return tokens[:, 0].to(device)


def nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """The probabilities (row, token), 0 for all but the fewest most likely tokens that together reach `top_p`.

    Tokens that are as likely as the last of them stay too, so that no order among equals decides.
    """
    if top_p >= 1:
        return probabilities
    likeliest = probabilities.topk(min(LIKELIEST, probabilities.shape[1]), dim=-1).values
    summed = likeliest.cumsum(dim=-1, dtype=torch.float64)
    if (summed[:, -1] < top_p).any():
        likeliest = probabilities.sort(dim=-1, descending=True).values
        summed = likeliest.cumsum(dim=-1, dtype=torch.float64)
    last = (summed < top_p).sum(dim=-1, keepdim=True).clamp(max=likeliest.shape[1] - 1)
    return probabilities.where(probabilities >= likeliest.gather(1, last), 0.0)


def uniforms(key: str, number: int, steps: int) -> NDArray[np.float64]:
    """Numbers from 0 to below 1, one for each step of an answer: a function of the key and the answer's number.

    They are made of the bits of Philox, which are the same in every version of numpy.
    """
    digest = hashlib.blake2b(f"{key}/{number}".encode(), digest_size=16).digest()
    bits = np.random.Philox(key=int.from_bytes(digest, "little")).random_raw(steps)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


class _Steps:
    def __init__(self, generator: Generator, cache: Any, mask: torch.Tensor, draws: _Draws | None = None) -> None:
        self.generator, self.cache, self.mask, self.draws = generator, cache, mask, draws

    def again(self, rows: torch.Tensor, draws: _Draws) -> _Steps:
        """What was computed so far of these rows, some of them several times, to go on with."""
        cache = Cache(layers=[copy(layer) for layer in self.cache.layers])
        steps = _Steps(self.generator, cache, self.mask, draws)
        steps._select(rows)
        return steps

    def run(
        self, chosen: torch.Tensor, logprob: torch.Tensor, positions: torch.Tensor, heard: Heard | None = None
    ) -> list[Generated]:
        """Go on from each row's first token to the end of its answer."""
        rows = chosen.shape[0]
        tokens: list[list[int]] = [[] for _ in range(rows)]
        logprobs: list[list[float]] = [[] for _ in range(rows)]
        ended = [False] * rows
        alive = list(range(rows))
        for step in range(self.generator.max_new_tokens + 1):
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
                keep = torch.tensor(left, device=self.mask.device)
                self._select(keep)
                ids, positions = ids[keep], positions[keep]
                alive = [alive[i] for i in left]
            self.mask = torch.cat([self.mask, self.mask.new_ones(len(alive), 1)], dim=1)
            logits = self.forward(ids, positions)
            if heard is not None:
                heard.step({row: i for i, row in enumerate(alive) if not ended[row]})
            chosen, logprob = self.choose(logits, alive, step + 1)
        return [Generated(*answer) for answer in zip(tokens, logprobs, ended, strict=True)]

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The logits of each row's next token: (row, vocabulary)."""
        output = self.generator.model.network(
            ids,
            attention_mask=self.mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    def choose(self, logits: torch.Tensor, rows: Sequence[int], step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The next token of each row, the most likely one or a drawn one, and its log-probability."""
        best = logits.max(dim=-1)
        if not torch.isfinite(best.values).all():
            raise ModelError(
                f"{self.generator.model.name}: the predicted logits are not finite numbers",
                "Check the model with: anchorscope doctor MODEL --dtype float32",
            )
        chosen = best.indices if self.draws is None else self.draws(logits, rows, step)
        values = logits.gather(1, chosen[:, None])[:, 0]
        return chosen.to(self.mask.device), (values - logits.logsumexp(dim=-1)).to(self.mask.device)

    def _select(self, rows: torch.Tensor) -> None:
        """Keep these rows only, or take some of them several times."""
        for layer in self.cache.layers:
            layer.select(rows) if isinstance(layer, _RoomyLayer) else layer.batch_select_indices(rows.to(layer.device))
        self.mask = self.mask[rows.to(self.mask.device)]


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
