"""The words of a response while it is written, judged by the log-probabilities of its tokens.

A word is judged as soon as white space follows it. No word goes across white space, so what is known of it then is what
is known of it in the whole response, and the numbers are those of reading.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import expit

from anchorscope.detectors.reasons import NO_LOGPROBS, NO_WORDS, OTHER_TEXT
from anchorscope.errors import DetectorError
from anchorscope.spans.words import words
from anchorscope.words.detector import WordDetector
from anchorscope.words.features import WordsSoFar, form_row
from anchorscope.words.record import Judged, JudgedWord, Text


def check_live(detector: WordDetector) -> None:
    """Refuse a detector that cannot judge what an endpoint returns."""
    if why := detector.why_not_live:
        raise DetectorError(f"the detector {detector.name} of words {why[0]}", why[1])
    if not detector.known:
        raise DetectorError(
            f"the detector {detector.name} of words has no known responses, so an endpoint cannot be compared with it",
            "Fit it again with this version, on responses with a prompt or messages.",
        )


class LiveWords:
    """The words of one response, as far as it has arrived."""

    def __init__(self, detector: WordDetector, request: Text) -> None:
        """`request`: a text whose response is empty."""
        self.detector, self.request = detector, request
        self.reason = detector.why_not(request)
        """Reason why nothing can be said; empty otherwise."""
        self._response = self._spelled = ""
        self._starts, self._ends, self._logprobs = list[int](), list[int](), list[float]()
        self._closed = 0  # characters whose words are judged
        self._heard, self._rows = WordsSoFar(request), list[list[float]]()
        self.words = list[JudgedWord]()
        """The words that were judged so far, in order."""

    def add(self, text: str, tokens: Sequence[str], logprobs: Sequence[float]) -> list[JudgedWord]:
        """Take the next part of the response. The words that it completes."""
        self._response += text
        for token, logprob in zip(tokens, logprobs, strict=True):
            self._starts.append(len(self._spelled))
            self._spelled += token
            self._ends.append(len(self._spelled))
            self._logprobs.append(logprob)
        spaces = [number for number, letter in enumerate(text) if letter.isspace()]
        return self._judge(len(self._response) - len(text) + spaces[-1]) if spaces else []

    def close(self) -> Judged:
        """The whole response. What was said of its words before holds only if there is no reason against it here."""
        self._judge(len(self._response))
        text = replace(self.request, response=self._response)
        why = self.reason or ("" if self._rows else NO_WORDS)
        why = why or self.detector.likeness.why_unlike(np.array(self._rows, np.float32), None)
        return Judged(text, () if why else tuple(self.words), self.detector.threshold, why)

    def _judge(self, end: int) -> list[JudgedWord]:
        """Judge the words up to a character behind which no word goes on."""
        start, self._closed = self._closed, max(end, self._closed)
        found = [(start + a, start + b) for a, b in words(self._response[start:end])]
        if self.reason or not found:
            return []
        if self._spelled[start : found[-1][1]] != self._response[start : found[-1][1]]:
            self.reason = OTHER_TEXT if self._logprobs else NO_LOGPROBS
            return []
        rows = [self._row(len(self._rows) + number, *place) for number, place in enumerate(found)]
        p_wrong = expit(self.detector.weights.logits(np.array(rows, np.float32), {})).tolist()
        made = [JudgedWord(a, b, p) for (a, b), p in zip(found, p_wrong, strict=True)]
        self._rows += rows
        self.words += made
        return made

    def _row(self, order: int, start: int, end: int) -> list[float]:
        """The numbers of a word, in the order of the detector."""
        first = bisect_right(self._ends, start)
        own = self._logprobs[first : max(first + 1, bisect_left(self._starts, end))]
        row: list[float] = []
        for group in self.detector.weights.groups:
            if group == "form":
                row += form_row(self._response, order, start, end)
            elif group == "overlap":
                row += self._heard.row(self._response[start:end])
            else:
                row += [sum(own), min(own), own[0], float(np.log(len(own)))]
        return row
