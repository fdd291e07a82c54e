"""Attention of one token raised or lowered: the token that is read looks more, or less, at some of those before it.

A knockout takes edges away. Here they stay, and the weight of each is multiplied by a factor before the weights are
renormalised; no other token changes, so what differs is what the token that is read takes from there.
"""

from __future__ import annotations

from collections.abc import Sequence

from anchorscope.traces.knockout import Cut
from anchorscope.traces.layout import Stream


def reweighted_stream(
    ids: Sequence[int], shared: int, place: int, keys: Sequence[int], added: float, layers: int
) -> Stream:
    """The token at `place`, which gives `keys` exp(`added`) times the weight in each of `layers` layers.

    All before it is the clean stream's. Keys that are not before it are left out; without any it is the clean token
    again. An `added` of −inf cuts.
    """
    if not shared <= place < len(ids):
        raise ValueError(f"place {place} is not among the sample's own tokens")
    before = tuple(key for key in keys if key < place)
    return Stream((ids[place],), place, Cut(before, (place,) * len(before)), range(layers), added=added)
