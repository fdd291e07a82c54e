"""Cut chosen tokens of a prompt of one's own and look at what changes: in memory, clean and cut side by side.

The same pass, masks and hooks as a whole run: a cut by hand is a stream like any other.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import torch

from anchorscope import doors
from anchorscope.errors import ModelError
from anchorscope.models.load import Model, Tokenizer
from anchorscope.models.opened import ModelLike, open_model
from anchorscope.spans.asked import Asked, Put, put
from anchorscope.spans.marks import Marks
from anchorscope.study.terms import SITES, Into, Position, Site, SpanName
from anchorscope.study.validation import check_word
from anchorscope.traces.knockout import Cut, Knockout
from anchorscope.traces.layout import clean_stream, cut_stream
from anchorscope.traces.tracer import Read, Tracer

Heads = Iterable[int] | Mapping[int, Iterable[int]]
"""Heads for which a cut holds: in all its layers, or by layer."""
SPAN_NAMES: tuple[str, ...] = get_args(SpanName)


@dataclass(frozen=True)
class Pass:
    """What was read in one pass."""

    states: dict[Site, torch.Tensor]
    """(layer, read, width) of each site, float32"""
    logprobs: torch.Tensor
    """(read, vocabulary): log-probability (natural) of every next token, float32"""


@dataclass(frozen=True)
class CutPrompt:
    """One prompt, clean and cut. Print it, or leave it as the last line of a notebook cell."""

    tokens: list[str]
    """What each token says, from the first on: their numbers are the places that `cut` takes."""
    cut_places: list[int]
    """The places that became invisible."""
    read_places: list[int]
    """The places that were read."""
    clean: Pass
    """As the model is."""
    cut: Pass
    """Under the cut."""
    vocabulary: Tokenizer
    """Says what a token id is."""

    def top(self, count: int = 5, read: int = -1) -> list[tuple[str, float, float]]:
        """The likeliest next tokens, clean, after one of the places read: text, log-probability clean and cut."""
        clean, cut = self.clean.logprobs[read], self.cut.logprobs[read]
        best = clean.topk(count).indices.tolist()
        return [(self.vocabulary.decode([token]), float(clean[token]), float(cut[token])) for token in best]

    def moved(self, site: Site = "resid") -> torch.Tensor:
        """(layer, read): how far the cut moves each state, relative to its length."""
        clean, cut = self.clean.states[site], self.cut.states[site]
        return (cut - clean).norm(dim=-1) / clean.norm(dim=-1)

    def _marked(self, cut: tuple[str, str], read: tuple[str, str], escape: bool = False) -> str:
        parts = []
        for place, token in enumerate(self.tokens):
            text = html.escape(token) if escape else token
            for places, (before, after) in ((self.cut_places, cut), (self.read_places, read)):
                text = f"{before}{text}{after}" if place in places else text
            parts.append(text)
        return "".join(parts)

    def __str__(self) -> str:
        lines = [
            self._marked(("[", "]"), ("<", ">")),
            "[cut]  <read>",
            "",
            "next token    clean    cut  (log-probability)",
        ]
        lines += [f"{token!r:12} {clean:6.2f} {cut:6.2f}" for token, clean, cut in self.top()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        words = self._marked(('<s style="color:#c2389a">', "</s>"), ('<b style="color:#1f6fc4">', "</b>"), escape=True)
        rows = "".join(
            f"<tr><td><code>{html.escape(repr(token))}</code></td><td>{clean:.2f}</td><td>{cut:.2f}</td></tr>"
            for token, clean, cut in self.top()
        )
        head = "<tr><th>next token</th><th>clean</th><th>cut</th></tr>"
        return f'<p style="white-space:pre-wrap">{words}</p><table>{head}{rows}</table>'


def tokens(model: ModelLike, prompt: str | Asked, tokenizer: Tokenizer = None) -> list[str]:
    """What each token of a prompt says, from the first on: their numbers are the places that `cut` and `trace` take."""
    return put(open_model(model, tokenizer), _prompt(prompt)).tokens


def cut(
    model: ModelLike,
    prompt: str | Asked,
    tokens: Marks,
    *,
    into: Into | int = "after",
    layers: Iterable[int] | None = None,
    heads: Heads | None = None,
    read: int | Position | Sequence[int | Position] = -1,
    sites: Sequence[Site] = ("resid",),
    tokenizer: Tokenizer = None,
) -> CutPrompt:
    """Make tokens of a prompt invisible to later ones, and read what changes.

    `tokens`: places (negative from the end), a text that they say, several of these; or, of an `Asked`, the name of a
    span: exact_question, control_question, control_random, matched_question, matched_random,
    exact_answer.
    `into`: who loses sight of them: all later tokens ("after"), the answer's ("answer", of an `Asked`), or all from a
    place on. `layers` and `heads`: where the cut holds; all, unless given; heads may be given by layer. `read`: places,
    or positions of an `Asked`. `sites`: attn, mlp, resid.
    """
    for site in [sites] if isinstance(sites, str) else sites:
        check_word("sites", site, Site)
    prompt = _prompt(prompt)
    if layers is not None:
        layers = doors.numbers("layers", layers)
    opened = open_model(model, tokenizer)
    laid = put(opened, prompt)
    # 1. which edges, in which layers, for which heads
    edges = _edges(laid, tokens, into)
    held, by_layer = _where(opened, layers, heads)
    # 2. which places
    wanted = [read] if isinstance(read, (int, str)) else list(read)
    places = [_place(laid, position) for position in wanted]
    # 3. both in one pass
    streams = [clean_stream(laid.ids, 0), cut_stream(laid.ids, 0, edges, held, by_layer)]
    reads = [Read(0, stream, place) for stream in range(2) for place in places]
    chosen = [sites] if isinstance(sites, str) else sites
    ordered = [site for site in SITES if site in chosen]
    states, logits = Tracer(opened, [], ordered).with_logits([streams], reads)
    logprobs = logits.float().log_softmax(dim=-1)
    passes = [
        Pass(
            {site: both.float().chunk(2, dim=1)[stream].clone() for site, both in states.items()},
            logprobs.chunk(2)[stream].clone(),
        )
        for stream in range(2)
    ]
    return CutPrompt(laid.tokens, sorted(edges.keys), places, passes[0], passes[1], opened.tokenizer)


def _prompt(prompt: str | Asked) -> str | Asked:
    """A text, or a question with an answer, whose parts are texts."""
    if isinstance(prompt, Asked):
        doors.texts(question=prompt.question, answer=prompt.answer)
        return prompt
    return doors.text("prompt", prompt)


def _edges(laid: Put, tokens: Marks, into: Into | int) -> Cut:
    if not isinstance(into, int):
        check_word("into", into, Into)
    spans = laid.spans
    if spans is not None and isinstance(tokens, str) and tokens in SPAN_NAMES:
        if tokens != "exact_answer" and not isinstance(into, int):
            return Knockout(tokens, into).cut(spans)  # type: ignore[arg-type]  # the names were compared
        chosen = spans.exact_answer if tokens == "exact_answer" else list(Knockout(tokens).cut(spans).keys)  # type: ignore[arg-type]
    else:
        chosen = laid.marked(tokens, "tokens")
    if into == "answer":
        if spans is None:
            raise ModelError(
                "into: a plain prompt has no answer", "Give into='after', the index of a token, or an Asked."
            )
        first = spans.answer[0]
    else:
        first = 0 if into == "after" else laid.marked(into, "into")[0]
    blind = [max(first, token + 1) for token in chosen]
    if all(query >= len(laid.ids) for query in blind):
        raise ModelError("tokens: no later token can attend to these tokens, so cutting them has no effect")
    return Cut(tuple(chosen), tuple(blind))


def _where(
    model: Model, layers: Iterable[int] | None, heads: Heads | None
) -> tuple[Sequence[int], dict[int, frozenset[int]] | None]:
    """The layers of a cut, and for which heads it holds in each."""
    config = model.network.config.get_text_config()
    count, head_count = int(config.num_hidden_layers), int(config.num_attention_heads)
    if layers is None:
        layers = sorted(heads) if isinstance(heads, Mapping) else range(count)
    held = _numbers("layers", layers, count)
    if heads is None:
        return held, None
    heads = heads if isinstance(heads, Mapping) else tuple(heads)
    by_layer = dict(heads) if isinstance(heads, Mapping) else dict.fromkeys(held, heads)
    if sorted(by_layer) != held:
        raise ModelError(f"heads are given for layers {sorted(by_layer)}, but the layers to cut are {held}")
    return held, {layer: frozenset(_numbers("heads", numbers, head_count)) for layer, numbers in by_layer.items()}


def _numbers(name: str, given: Iterable[int], count: int) -> list[int]:
    chosen = sorted({number + count if number < 0 else number for number in given})
    if not chosen or not 0 <= chosen[0] <= chosen[-1] < count:
        raise ModelError(f"{name}: {chosen or 'none'}; this model has {name} 0 to {count - 1}")
    return chosen


def _place(laid: Put, position: int | Position) -> int:
    if isinstance(position, int):
        return laid.marked(position, "read")[0]
    check_word("read", position, Position)
    if laid.spans is None:
        raise ModelError(
            "read: a plain prompt has no named positions", "Give the index of a token, or an Asked as the prompt."
        )
    return getattr(laid.spans, position)
