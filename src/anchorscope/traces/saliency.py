"""Saliency: how much the edges from exact answer tokens to exact question tokens carry. A pass with gradients.

A sample's saliency in a layer is the mean over its E_Q × E_A edges of | Σ over heads of A ⊙ ∂y/∂A |, where y is the
read-out of a linear probe, or the log-likelihood of the answer.

What an exact answer token attends to changes nothing before that token. So no gradient passes through the *early*
tokens, those before the first exact answer token: they go through the model without, and leave their keys and values
behind. Only the few *late* tokens go through it with gradients, with their attention written out; so of the attention
maps no more than the late tokens' rows are made, and one backward pass gives the gradients of a whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from anchorscope.errors import ModelError
from anchorscope.models.batches import plan_batches
from anchorscope.models.heap import give_back
from anchorscope.models.load import Model
from anchorscope.models.prefix import Prefix, compute_prefix
from anchorscope.models.sites import site_modules
from anchorscope.progress import Advance, uncounted
from anchorscope.spans.samples import Sample
from anchorscope.study.terms import Site
from anchorscope.traces.attention import BEYOND_SDPA, attention_as, attention_in_rows
from anchorscope.traces.attention import NAME as ROWS
from anchorscope.traces.budget import MARGIN, make_budget
from anchorscope.traces.layout import Stream, lay_out

NAME = "anchorscope_saliency"
Ints = NDArray[np.int64]
Attend = Callable[..., tuple[torch.Tensor, None]]
ReadoutProbe = tuple[
    nn.Module, NDArray[np.float32]
]  # the module whose output is read, and a probe's weights for each sample
Of = Literal["logit", "loss"]
"""What the gradient is of: the probe's logit, or the log-likelihood of the answer (the published one)."""


def saliencies(
    model: Model,
    shared_ids: Sequence[int],
    samples: Sequence[Sample],
    places: Sequence[int],
    layer: int,
    site: Site,
    weights: NDArray[np.float32],
    of: Of = "logit",
    memory: float = 1.0,
    advance: Advance = uncounted,
) -> NDArray[np.float32]:
    """(sample, layer + 1): the saliency of each sample by layer, up to the anchor layer; its sum is the sample's.

    `places` are the tokens at which `site` of `layer` is read, `weights` (sample, width) the probes that read it: each
    sample may have the one of its own fold. A batch takes `memory` gigabytes at most, by the formula of `_cost`.
    """
    texts = [_text(sample, shared_ids, place, of) for sample, place in zip(samples, places, strict=True)]
    by_layer = np.zeros((len(texts), layer + 1), np.float32)
    if not texts:
        return by_layer
    # copies, as autograd keeps nothing that was made in inference mode
    prefix = [(keys.clone(), values.clone()) for keys, values in compute_prefix(model, shared_ids)]
    cost = _cost(model, texts, len(shared_ids), layer, of)
    module = site_modules(model.network, model.sites, site)[layer]
    for rows in plan_batches([len(text.late) for text in texts], int(memory * 1e9), cost):
        batch = _GradientBatch([texts[row] for row in rows], len(shared_ids))
        by_layer[rows] = _saliency(model, prefix, batch, layer, None if of == "loss" else (module, weights[rows]))
        advance(len(rows))
        give_back()
    return by_layer


def _saliency(
    model: Model, prefix: Prefix, batch: _GradientBatch, layer: int, probe: ReadoutProbe | None
) -> NDArray[np.float64]:
    """(sample, layer + 1) of one batch; without a probe, of the answer's log-likelihood."""
    with _frozen(model.network):
        late = _Late(
            model, prefix, batch, _early_pass(model, prefix, batch, layer if probe else model.source.layers - 1)
        )
        read = _probed(model, late, *probe) if probe else _likelihood(model, late)
        return late.saliency(read, layer)


def _cost(model: Model, texts: Sequence[_SampleText], before: int, layer: int, of: Of) -> Callable[[int], int]:
    """The bytes of one sample in a batch whose samples have `late` late tokens at most: no more than

        early pass + MARGIN × (layers × (own × key + late × (token + heads × (before + own) × edge)) + late × predicted)

    that is, the keys and values it attends to, what its late tokens leave for the backward pass, and their rows of
    attention. `own` are the tokens behind the prefix of the longest sample of all.
    """
    config = model.network.config.get_text_config()
    budget = make_budget(model, 0, before, reads=0)
    own = max(len(text.ids) for text in texts) - before
    layers = layer + 1 if of == "logit" else model.source.layers
    heads, size = config.num_attention_heads, model.network.dtype.itemsize
    # what stays of a token is no more than what it takes at once, and its norms in float32
    token = budget.stays + max(budget.mlp, budget.attention) + (2 * size + 16) * config.hidden_size
    edge = 3 * size + 12  # scores, weights and their gradient; the softmax is in float32 at least
    predicted = 16 * config.vocab_size if of == "loss" else 0

    def cost(late: int) -> int:
        kept = layers * (own * budget.key + late * (token + heads * (before + own) * edge)) + late * predicted
        return budget.cost(own) + int(MARGIN * kept)

    return cost


@contextmanager
def _frozen(network: nn.Module) -> Iterator[None]:
    """Within it, no parameter wants a gradient."""
    wanting = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in wanting:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in wanting:
            parameter.requires_grad_(True)


@dataclass(frozen=True)
class _SampleText:
    """One sample as it goes through the model. Places are counted from the start of the text, the prefix included."""

    ids: list[int]
    """Its tokens, up to the last one needed."""
    start: int
    """The place of the first late token."""
    place: int
    questions: list[int]
    """The places of the exact question tokens: the keys."""
    answers: list[int]
    """The places of the exact answer tokens: the queries."""
    answered: int
    """The place of the answer's first token."""

    @property
    def late(self) -> list[int]:
        """The tokens that go through with gradients."""
        return self.ids[self.start :]


def _text(sample: Sample, shared_ids: Sequence[int], place: int, of: Of) -> _SampleText:
    spans, prompt = sample.spans, [*shared_ids, *sample.answer.prompt_ids]
    ids = [*prompt, *sample.answer.answer_ids]
    if not spans.exact_question or not spans.exact_answer:
        raise ValueError(f"{spans.id}: saliency needs exact tokens, and this sample has none")
    start, end = min(spans.exact_answer), len(ids)
    if of == "logit":
        start, end = min(start, place), max(*spans.exact_answer, place) + 1
    if not max(len(shared_ids) - 1, *spans.exact_question) < start:
        raise ValueError(f"{spans.id}: exact question tokens stand before what is read")
    return _SampleText(ids[:end], start, place, spans.exact_question, spans.exact_answer, len(prompt))


class _GradientBatch:
    """Samples that go through together: their late tokens as slots of one flat list, and in rows where they attend.

    A row's keys are in columns: the prefix, then the early tokens, then the late ones, padded behind each of the two.
    """

    def __init__(self, texts: Sequence[_SampleText], shared: int) -> None:
        self.texts, self.shared = texts, shared
        lengths = np.array([len(text.late) for text in texts])
        self.starts = np.array([text.start for text in texts])
        self.early, self.late = int(self.starts.max()) - shared, int(lengths.max())
        self.firsts = np.cumsum(lengths) - lengths  # the first slot of each sample
        self._real = np.arange(self.late) < lengths[:, None]  # (sample, late)
        self._places = self.starts[:, None] + np.arange(self.late)  # (sample, late)

    @property
    def ids(self) -> Ints:
        """(slot,)"""
        return np.concatenate([text.late for text in self.texts])

    @property
    def places(self) -> Ints:
        """(slot,)"""
        return self._places[self._real]

    @property
    def slots(self) -> Ints:
        """(sample, late): the slot of each late token; of padding, any."""
        return np.where(self._real, self.firsts[:, None] + np.arange(self.late), 0)

    @property
    def stands(self) -> Ints:
        """(slot,): where it is in the rows, counted through."""
        return np.flatnonzero(self._real)

    def unseen(self, window: int | None) -> NDArray[np.bool_]:
        """(sample, late, column): which keys a late token does not see."""
        before = np.arange(self.shared + self.early)  # of the prefix and of early tokens, columns are places
        nowhere = self.starts[:, None] + self.late
        columns = np.concatenate([np.where(before < self.starts[:, None], before, nowhere), self._places], axis=1)
        back = self._places[:, :, None] - columns[:, None, :]
        return np.asarray((back < 0) | (back >= (np.inf if window is None else window)))

    def edges(self) -> NDArray[np.float64]:
        """(sample, late, column): the share of each E_Q × E_A edge in the mean of its sample; 0 for other edges."""
        shares = np.zeros((len(self.texts), self.late, self.shared + self.early + self.late))
        for share, text in zip(shares, self.texts, strict=True):
            queries = [place - text.start for place in text.answers]
            share[np.ix_(queries, text.questions)] = 1 / (len(text.answers) * len(text.questions))
        return shares


class _Enough(Exception):  # noqa: N818 nothing went wrong
    """All that is wanted of a pass is known."""


_ATTEND: ContextVar[Attend] = ContextVar("attention of the pass that runs")
AttentionInterface.register(NAME, lambda *args, **given: _ATTEND.get()(*args, **given))


def _run(model: Model, module: nn.Module, attend: Attend, ids: Ints, places: Ints, **wanted: Any) -> Any:
    """One pass of flat slots through the decoder, or the whole model: what it gives; None where it was stopped."""
    token = _ATTEND.set(attend)
    try:
        with attention_as(model, NAME), suppress(_Enough):
            return module(
                torch.from_numpy(ids)[None].to(model.device),
                attention_mask=torch.zeros(1, 1, 1, 1, device=model.device),  # `attend` has its own
                position_ids=torch.from_numpy(places)[None].to(model.device),
                use_cache=False,
                **wanted,
            )
    finally:
        _ATTEND.reset(token)
    return None


class _Early:
    """Attention of the early tokens. By layer it keeps their keys and values, (B, G, E, D) each."""

    def __init__(self, slots: Ints, last: int) -> None:
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._slots, self._last = slots, last

    def __call__(
        self, module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **given: Any
    ) -> tuple[torch.Tensor, None]:
        self.kept.append((_in_rows(key, self._slots), _in_rows(value, self._slots)))
        if len(self.kept) > self._last:
            raise _Enough  # nobody needs what this layer makes of them
        return ALL_ATTENTION_FUNCTIONS[ROWS](module, query, key, value, *args, **given)


@torch.no_grad()
def _early_pass(model: Model, prefix: Prefix, batch: _GradientBatch, last: int) -> _Early:
    """Run the early tokens of a batch, as far as the keys of the last layer that is needed."""
    streams = [[Stream(tuple(text.ids[batch.shared : text.start]), batch.shared)] for text in batch.texts]
    layout = lay_out(streams, batch.shared, model.source.layers)
    slots = np.array(layout.firsts) + np.arange(batch.early)  # (sample, early); of padding, any
    early = _Early(np.minimum(slots, len(layout.ids) - 1), last)
    extra = (0, layout.filled(-1) - len(layout.ids))
    with attention_in_rows(model, layout, prefix):
        _run(model, model.network.get_decoder(), early, np.pad(layout.ids, extra), np.pad(layout.places, extra))
    return early


class _Late:
    """Attention of the late tokens, written out. It keeps their rows of each layer's attention map."""

    def __init__(self, model: Model, prefix: Prefix, batch: _GradientBatch, early: _Early) -> None:
        self.batch, self._name, self._prefix, self._early = batch, model.name, prefix, early
        unseen = {window: torch.from_numpy(batch.unseen(window)) for window in set(model.windows)}
        self._unseen = [unseen[window] for window in model.windows]
        self._maps: list[torch.Tensor] = []  # by layer, (B, H, L, K)

    def __call__(
        self,
        module: nn.Module,
        query: torch.Tensor,  # (1, H, S, D)
        key: torch.Tensor,  # (1, G, S, D)
        value: torch.Tensor,  # (1, G, S, D)
        attention_mask: Any,
        scaling: float | None = None,
        softcap: float | None = None,
        **given: Any,
    ) -> tuple[torch.Tensor, None]:
        if any(given.get(name) is not None for name in BEYOND_SDPA):
            raise ModelError(f"{self._name}: saliency does not know what it adds to attention")
        # 1. queries, those of heads that share their keys behind each other, and keys; the prefix's are not copied
        layer, groups = len(self._maps), key.shape[1]
        q = _in_rows(query, self.batch.slots)  # (B, H, L, D)
        grouped = q.reshape(len(q), groups, -1, q.shape[-1])
        before = self._prefix[layer] if self._prefix else (key[:, :, :0], value[:, :, :0])
        k0, v0 = (states[0].to(query.device) for states in before)  # (G, P, D)
        k, v = (  # (B, G, E + L, D)
            torch.cat([early, _in_rows(own, self.batch.slots)], dim=2)
            for early, own in zip(self._early.kept[layer], (key, value), strict=True)
        )
        # 2. the rows of the map. A padded query may see nothing: it gets some numbers, which nobody reads
        scores = torch.cat([torch.einsum("bgnd,gpd->bgnp", grouped, k0), grouped @ k.mT], dim=-1)
        scores = scores.view(*q.shape[:3], -1) * (q.shape[-1] ** -0.5 if scaling is None else scaling)
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        unseen = self._unseen[layer].to(scores.device)[:, None]
        scores = scores.masked_fill(unseen, torch.finfo(scores.dtype).min)
        rows = torch.softmax(scores, dim=-1, dtype=_precise(scores.dtype)).to(scores.dtype)
        if not rows.requires_grad:
            rows.requires_grad_()  # the first layer's: gradients go no deeper
        self._maps.append(rows)
        # 3. what they attend to, as slots again
        shares = rows.view(*grouped.shape[:3], -1)
        out = torch.einsum("bgnp,gpd->bgnd", shares[..., : k0.shape[1]], v0) + shares[..., k0.shape[1] :] @ v
        out = out.reshape(*q.shape[:3], -1).transpose(1, 2).flatten(0, 1)  # (B × L, H, D)
        return out.index_select(0, _index(self.batch.stands, out))[None], None

    def saliency(self, read: torch.Tensor, layer: int) -> NDArray[np.float64]:
        """(sample, layer + 1): by one backward pass from the sum of what was read of the samples."""
        edges, by_layer = torch.from_numpy(self.batch.edges()), np.zeros((len(self.batch.texts), layer + 1))
        maps = self._maps[: layer + 1]
        if not read.requires_grad:  # in layer 0, an MLP beside attention sees nothing of it
            return by_layer
        gradients = torch.autograd.grad(read, maps, materialize_grads=True)
        for number, (rows, gradient) in enumerate(zip(maps, gradients, strict=True)):
            flow = (rows.detach() * gradient).sum(dim=1, dtype=_precise(rows.dtype)).abs()  # over heads: (B, L, K)
            by_layer[:, number] = (flow * edges.to(flow)).sum(dim=(1, 2)).cpu().numpy()
        return by_layer


def _probed(model: Model, late: _Late, module: nn.Module, weights: NDArray[np.float32]) -> torch.Tensor:
    """The sum of what each sample's probe reads at the output of a module, which ends the pass."""
    batch = late.batch
    sums: list[torch.Tensor] = []
    slots = batch.firsts + np.array([text.place - text.start for text in batch.texts])

    def read(module: nn.Module, inputs: Any, output: Any) -> None:
        states = output[0] if isinstance(output, tuple) else output
        states = states[0].index_select(0, _index(slots, states))
        sums.append((states * torch.from_numpy(weights).to(states.device, _precise(states.dtype))).sum())
        raise _Enough

    hook = module.register_forward_hook(read)
    try:
        _run(model, model.network.get_decoder(), late, batch.ids, batch.places)
    finally:
        hook.remove()
    return sums[0]


def _likelihood(model: Model, late: _Late) -> torch.Tensor:
    """The sum of the answers' log-likelihoods, as far as late tokens predict them: the rest has no gradient."""
    batch = late.batch
    slots, wanted = [], []
    for first, text in zip(batch.firsts, batch.texts, strict=True):
        predicted = range(max(text.start + 1, text.answered), len(text.ids))
        slots += [first + place - 1 - text.start for place in predicted]
        wanted += [text.ids[place] for place in predicted]
    # one token more, as some batch may predict nothing: it is not counted
    kept = np.array([*slots, 0])  # not a tensor: accelerate would carry it to another device than the head's
    logits = _run(model, model.network, late, batch.ids, batch.places, logits_to_keep=kept).logits[0]
    scores: torch.Tensor = logits[:-1].to(_precise(logits.dtype)).log_softmax(dim=-1)
    return scores.gather(1, _index(np.array(wanted, np.int64), scores)[:, None]).sum()


def _in_rows(states: torch.Tensor, slots: Ints) -> torch.Tensor:
    """(B, heads, column, D): of (1, heads, slot, D), as they stand in rows."""
    picked = states[0].index_select(1, _index(slots.ravel(), states))
    return picked.view(len(picked), *slots.shape, -1).transpose(0, 1).contiguous()


def _index(values: Ints, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(values).to(like.device)


def _precise(dtype: torch.dtype) -> torch.dtype:
    """At least float32."""
    return torch.promote_types(dtype, torch.float32)
