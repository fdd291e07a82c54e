"""What a model read at the words of one response, as detectors take it. It imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.words.record import Text
from anchorscope.words.request import PARTS

Floats = NDArray[np.float32]

PREDICTED = ("logprob", "least_logprob", "first_logprob", "entropy", "first_entropy", "rank", "tokens")
LOST = ("lost", "most_lost", "first_lost")
NUMBERS = (*PREDICTED, *(f"{name}_{part}" for part in PARTS[1:] for name in LOST))
"""What is known of each word: sums over its tokens, the least of them, and its first token; and what is lost."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What a model read at the words of one response."""

    text: Text
    """The response."""
    numbers: Floats
    """(word, NUMBERS): nan for what cannot be lost, since the text has no passage"""
    states: NDArray[np.floating]
    """(layer, word, width): states at the last token of each word, in the dtype of the model or in float32"""
    identity: NDArray[np.floating]
    """(word, 3 × width): embeddings of the last token of each word and of the word before it, and the mean of those of
    the ten words before it, which know no context; of no width where they were not asked for"""
    reason: str = ""
    """Reason why nothing was read; empty otherwise."""
