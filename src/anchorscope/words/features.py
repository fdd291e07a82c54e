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
from anchorscope.words.reading import NUMBERS, PREDICTED, Reading
from anchorscope.words.record import Text

Group = Literal["form", "overlap", "logprob", "confidence", "lost"]
Floats = NDArray[np.float32]

FORM = ("capital", "capital_inside", "digit", "letters", "function", "place", "first", "sentence_start")
"""Form and place of a word."""
OVERLAP = ("not_in_passage", "pair_not_in_passage", "not_in_request", "said_before")
"""Whether a word, and the pair with the word before it, stand in the passage, the request and the response so far."""
SPOKEN = ("logprob", "least_logprob", "first_logprob", "tokens")
"""What the log-probabilities of a word's own tokens tell. Every endpoint with log-probabilities has them."""
FEATURES: dict[Group, tuple[str, ...]] = {
    "form": FORM,
    "overlap": OVERLAP,
    "logprob": SPOKEN,
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
    rows = [form_row(text.response, order, *place) for order, place in enumerate(text.words)]
    return np.array(rows, np.float32).reshape(-1, len(FORM))


def form_row(response: str, order: int, start: int, end: int) -> list[float]:
    """(FORM): of one word, from the response as far as it is written"""
    word, opens = response[start:end], begins_sentence(response, start)
    capital = word[0].isupper()
    return [
        capital,
        capital and not opens,
        any(letter.isdigit() for letter in word),
        np.log(len(word)),
        word.lower() in FUNCTION_WORDS,
        np.log1p(order),
        order == 0,
        opens,
    ]


def overlap_of(text: Text) -> Floats:
    """(word, OVERLAP)"""
    heard = WordsSoFar(text)
    rows = [heard.row(text.response[start:end]) for start, end in text.words]
    return np.array(rows, np.float32).reshape(-1, len(OVERLAP))


class WordsSoFar:
    """The words of a request, and those of its response so far."""

    def __init__(self, text: Text) -> None:
        source = text.passage or ""
        request = " ".join([text.prompt, *(turn.content for turn in text.messages), source])
        passage = _folded(source)
        self._alone, self._pairs, self._asked = set(passage), set(pairwise(passage)), set(_folded(request))
        self._said, self._before = set[str](), ""

    def row(self, word: str) -> list[float]:
        """(OVERLAP): of the next word of the response"""
        word = word.casefold()
        row: list[float] = [
            word not in self._alone,
            (self._before, word) not in self._pairs,
            word not in self._asked,
            word in self._said,
        ]
        self._said.add(word)
        self._before = word
        return row


def begins_sentence(text: str, at: int) -> bool:
    """Whether a word that starts here begins a sentence or a line."""
    before = text[:at].rstrip(_OPENERS)
    bare = before.rstrip()
    return not bare or bare[-1] in ".!?:" or "\n" in before[len(bare) :]


def _folded(text: str) -> list[str]:
    return [text[start:end].casefold() for start, end in words(text)]
