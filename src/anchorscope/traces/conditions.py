"""What each condition makes of a sample: the tokens computed, the edges cut, the places read."""

from __future__ import annotations

from collections.abc import Sequence

from anchorscope.spans.record import Spans
from anchorscope.study.terms import CONDITION_DEFS, CONDITIONS, Condition, Into, Position
from anchorscope.traces.knockout import Cut, Knockout
from anchorscope.traces.layout import Stream, clean_stream, cut_stream

CUTS = {each.name: each.cuts for each in CONDITION_DEFS if each.cuts}
"""The span each condition cuts."""
_DEFS = {each.name: each for each in CONDITION_DEFS}


LAID_OUT = tuple(condition for condition in CONDITIONS if condition in ("clean", "answer_only", *CUTS))
"""The conditions that are made of a sample's own tokens alone."""


def stream_of(condition: Condition, ids: Sequence[int], spans: Spans, shared: int, into: Into, layers: int) -> Stream:
    """One condition of one sample. `ids` are prompt and answer, the first `shared` of them the shared prefix."""
    if condition == "clean":
        return clean_stream(ids, shared)
    if condition == "answer_only":
        # the question and the context are taken out; what follows moves up behind the prefix
        return Stream(tuple(ids[spans.cue[0] :]), spans.prefix[1])
    return cut_stream(ids, shared, cut_of(condition, spans, into), cut_layers(condition, layers))


def cut_of(condition: Condition, spans: Spans, into: Into) -> Cut:
    """The edges that a condition cuts in one sample. `into`: for which queries, where the condition leaves it open."""
    return Knockout(CUTS[condition], _DEFS[condition].into or into).cut(spans)


def cut_layers(condition: Condition, layers: int) -> range:
    """The layers in which a condition cuts."""
    first, last = (round(part * layers) for part in _DEFS[condition].layers)
    return range(first, last)


def place_of(condition: Condition, spans: Spans, position: Position | int) -> int:
    """The token that is read: a position, or a place in the clean sequence."""
    place: int = position if isinstance(position, int) else getattr(spans, position)
    return place - (spans.cue[0] - spans.prefix[1]) if condition == "answer_only" else place
