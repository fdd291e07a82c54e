"""What a response with labelled spans is, and which of its words are wrong. No model is needed for that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.spans.words import Range, words

WRONG, RIGHT, UNJUDGED = 1, 0, -1


class Span(NamedTuple):
    """Characters of a response that somebody judged."""

    start: int
    """Number of the first character."""
    end: int
    """One past the last character."""
    wrong: bool | None
    """Whether these characters are wrong, or None if they count neither as wrong nor as right."""


class Message(NamedTuple):
    """One turn of a chat."""

    role: str
    """Role of the speaker: system, user or assistant."""
    content: str
    """Text of the turn."""


@dataclass(frozen=True, slots=True)
class Text:
    """A response, the request that it answers, and the spans that somebody judged."""

    id: str
    """Name of the response, different for each."""
    response: str
    """Text of the response."""
    prompt: str = ""
    """Text of the request, or empty where `messages` are given."""
    messages: tuple[Message, ...] = ()
    """Chat that the response answers, or empty where `prompt` is given."""
    passage: str | None = None
    """Passage that the response should agree with, or None. If the request does not contain it, it is put behind it."""
    continues: bool = False
    """Whether the response goes on in the prompt's own text, without a template or a line end between the two."""
    cluster: str = ""
    """What related responses share, such as a passage, a person or a page. They are never in two folds."""
    writer: str | None = None
    """Name of the model that wrote the response, or None if the file does not say."""
    spans: tuple[Span, ...] | None = None
    """Judged spans in the order of the file, or None if the response was not judged."""
    unmarked_right: bool = True
    """Whether words outside all spans are right. If not, nothing is known about them."""

    @property
    def words(self) -> list[Range]:
        """Character ranges of the words of the response."""
        return words(self.response)

    @property
    def labels(self) -> NDArray[np.int8]:
        """(word): WRONG, RIGHT or UNJUDGED.

        A word that a wrong span touches is wrong, whatever other spans say. A word that only spans without a judgement
        touch is not judged, and one that a span calls right is right.
        """
        found = self.words
        labels = np.full(len(found), UNJUDGED, np.int8)
        if self.spans is None:
            return labels
        for number, (start, end) in enumerate(found):
            said = {span.wrong for span in self.spans if span.start < end and start < span.end}
            if True in said:
                labels[number] = WRONG
            elif None in said:
                labels[number] = UNJUDGED
            elif False in said or self.unmarked_right:
                labels[number] = RIGHT
        return labels


class JudgedWord(NamedTuple):
    """A word of a response with the probability that it is wrong."""

    start: int
    """Number of its first character in the response."""
    end: int
    """One past its last character."""
    p_wrong: float
    """Probability that the word is wrong, if half of all words were wrong."""
    lost: float | None = None
    """What its log-probability loses without the passage, in nats; None where there is no passage."""


class Flagged(NamedTuple):
    """Neighbouring words of a response that are all above a threshold."""

    start: int
    """Number of the first character in the response."""
    end: int
    """One past the last character."""
    p_wrong: float
    """Largest probability of its words."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A response whose words were judged."""

    text: Text
    """The response, with the spans of people where there are any."""
    words: tuple[JudgedWord, ...]
    """Its words in order; empty where the detector cannot say anything."""
    threshold: float | None = None
    """Probability above which a word is flagged, or None without a threshold."""
    reason: str = ""
    """Reason why the detector cannot say anything about the response; empty otherwise."""

    def flagged(self, threshold: float | None = None) -> list[Flagged]:
        """Runs of neighbouring words above a threshold (default: that of the detector)."""
        limit = self.threshold if threshold is None else threshold
        if limit is None:
            return []
        return runs(self.words, [word.p_wrong > limit for word in self.words])

    def __str__(self) -> str:
        from anchorscope.words.view import plain

        return plain(self)

    def _repr_html_(self) -> str:
        from anchorscope.words.view import html

        return html([self])


def runs(found: tuple[JudgedWord, ...], flags: list[bool]) -> list[Flagged]:
    """Neighbouring words that are flagged, joined: from the start of the first to the end of the last."""
    joined: list[Flagged] = []
    before = False
    for word, flag in zip(found, flags, strict=True):
        if flag and before:
            last = joined[-1]
            joined[-1] = Flagged(last.start, word.end, max(last.p_wrong, word.p_wrong))
        elif flag:
            joined.append(Flagged(word.start, word.end, word.p_wrong))
        before = flag
    return joined
