"""What a detector of words knows of each word, in groups: the rivals, which need no states, one by one.

All of it is causal: of a word, and of what stands before it, so that a server can know it while the response is
written. What is lost without the passage needs a pass of its own, so a server does not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anchorscope.spans.words import FUNCTION_WORDS, words
from anchorscope.words.read import NUMBERS, PREDICTED, Reading
from anchorscope.words.record import Text

Group = Literal["form", "overlap", "confidence", "lost"]
Floats = NDArray[np.float32]

FORM = ("capital", "capital_inside", "digit", "letters", "function", "place", "first", "sentence_start")
"""Form and place of a word."""
OVERLAP = ("not_in_passage", "pair_not_in_passage", "not_in_request", "said_before")
"""Whether a word, and the pair with the word before it, stand in the passage, the request and the response so far."""
FEATURES: dict[Group, tuple[str, ...]] = {
    "form": FORM,
    "overlap": OVERLAP,
    "confidence": PREDICTED,
    "lost": NUMBERS[len(PREDICTED) :],
}
"""Names of the numbers of each group."""
_OPENERS = "\"“‘'(["


def features_of(reading: Reading, groups: Sequence[Group]) -> Floats:
    """(word, number): the numbers of these groups, side by side. What cannot be measured is 0 for every word."""
    text_only = {"form": form_of, "overlap": overlap_of}
    columns = [
        text_only[group](reading.text)
        if group in text_only
        else reading.numbers[:, [NUMBERS.index(name) for name in FEATURES[group]]]
        for group in groups
    ]
    nothing = np.empty((len(reading.numbers), 0), np.float32)
    return np.nan_to_num(np.concatenate([nothing, *columns], axis=1)).astype(np.float32)


def names_of(groups: Sequence[Group]) -> list[str]:
    """The names of the columns that `features_of` gives."""
    return [name for group in groups for name in FEATURES[group]]


def form_of(text: Text) -> Floats:
    """(word, FORM)"""
    rows = []
    for order, (start, end) in enumerate(text.words):
        word, opens = text.response[start:end], begins_sentence(text.response, start)
        capital = word[0].isupper()
        rows.append(
            (
                capital,
                capital and not opens,
                any(letter.isdigit() for letter in word),
                np.log(len(word)),
                word.lower() in FUNCTION_WORDS,
                np.log1p(order),
                order == 0,
                opens,
            )
        )
    return np.array(rows, np.float32).reshape(-1, len(FORM))


def overlap_of(text: Text) -> Floats:
    """(word, OVERLAP)"""
    source = text.passage or ""
    request = " ".join([text.prompt, *(turn.content for turn in text.messages), source])
    passage, asked, said = _folded(source), set(_folded(request)), set[str]()
    alone, pairs = set(passage), set(pairwise(passage))
    rows, before = [], ""
    for word in _folded(text.response):
        rows.append((word not in alone, (before, word) not in pairs, word not in asked, word in said))
        said.add(word)
        before = word
    return np.array(rows, np.float32).reshape(-1, len(OVERLAP))


def begins_sentence(text: str, at: int) -> bool:
    """Whether a word that starts here begins a sentence or a line."""
    before = text[:at].rstrip(_OPENERS)
    bare = before.rstrip()
    return not bare or bare[-1] in ".!?:" or "\n" in before[len(bare) :]


def _folded(text: str) -> list[str]:
    return [text[start:end].casefold() for start, end in words(text)]
