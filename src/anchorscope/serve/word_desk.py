"""Judges the words of any response of a server, while they arrive, by their log-probabilities.

The prompt may be anything: a chat, a passage, several lines. A response without a flagged word is never a pass, because
no promise of a detector of words is about such responses.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logit

from anchorscope.detectors.reasons import CANNOT_BE_JUDGED, NO_FLAG, NO_LOGPROBS, NO_THRESHOLD
from anchorscope.detectors.record import Decision, Verdict
from anchorscope.errors import DetectorError
from anchorscope.serve.config import ServeConfig
from anchorscope.serve.counts import Counts
from anchorscope.serve.endpoint import EndpointDesk
from anchorscope.serve.responses import AnswerChoice, ApiRequest
from anchorscope.store.checksums import sha256_of
from anchorscope.words.detector import WordDetector
from anchorscope.words.known import TOKENS
from anchorscope.words.live import LiveWords, check_live
from anchorscope.words.record import Judged, JudgedWord, Message, Text

LEAST_KNOWN = 0.5  # share of the known responses that an endpoint must begin in the same way
MOST_APART = 0.02  # mean difference of p_wrong on them


class _Following:
    """What has been heard of one answer."""

    def __init__(self, live: LiveWords | None) -> None:
        self.live = live
        self.characters = self.tokens = 0
        self.seconds = 0.0
        self.judged: Judged | None = None

    def add(self, choice: AnswerChoice) -> list[JudgedWord]:
        """Take what arrived since the last time."""
        if self.live is None:
            return []
        text, tokens = choice.text[self.characters :], choice.tokens[self.tokens :]
        words = self.live.add(text, tokens, choice.logprobs[self.tokens :])
        self.characters += len(text)
        self.tokens += len(tokens)
        return words


class WordDesk(EndpointDesk):
    """Judges the words of responses."""

    any_temperature = True

    def __init__(self, name: str, detector: WordDetector, counts: Counts, version: str = "") -> None:
        check_live(detector)
        super().__init__(name, counts)
        self.detector, self.version = detector, version

    def words(self, api_request: ApiRequest, index: int, choice: AnswerChoice, ended: bool) -> list[dict[str, Any]]:
        """The words that the last part of a choice completed; all that are left at its end."""
        start = time.perf_counter()
        if choice.heard is None:
            request = request_of(api_request, index // api_request.answers)
            choice.heard = _Following(LiveWords(self.detector, request) if isinstance(request, Text) else None)
            choice.why_not = choice.why_not or self.unlike_known(api_request, choice) or api_request.why_not
            choice.why_not = choice.why_not or (request if isinstance(request, str) else "")
        heard: _Following = choice.heard
        if choice.why_not or heard.live is None:
            return []
        words = heard.add(choice)
        if ended:
            before = len(heard.live.words) - len(words)
            heard.judged = heard.live.close()
            words = list(heard.judged.words[before:])
        heard.seconds += time.perf_counter() - start
        return [word_record(word) for word in words]

    async def verdict(self, api_request: ApiRequest, request: str, index: int, choice: AnswerChoice) -> dict[str, Any]:
        """The verdict on one choice."""
        heard: _Following = choice.heard
        why = choice.why_not or self.unlike_known(api_request, choice)
        judged = heard.judged if heard is not None and not why else None
        verdict, spans = self._verdict(judged, why or NO_LOGPROBS)
        promise = str(self.detector.promise) if self.detector.promise is not None else None
        record = {**verdict.record(), "promise": promise, "detector": self.name, "version": self.version}
        record["spans"] = spans
        self.counts.add(request, record, None, heard.seconds if heard is not None else 0.0)
        return record

    def _verdict(self, judged: Judged | None, why: str) -> tuple[Verdict, list[dict[str, Any]]]:
        limit = self.detector.threshold
        if judged is None or judged.reason:
            return Verdict("cannot say", judged.reason if judged else why, None, limit, 0.5, None), []
        highest = max(word.p_wrong for word in judged.words)
        spans = [word_record(JudgedWord(*span)) for span in judged.flagged()]
        reason = "" if spans else NO_THRESHOLD if limit is None else NO_FLAG
        decision: Decision = "flag" if spans else "cannot say"
        score = float(logit(np.clip(highest, 1e-12, 1 - 1e-12)))
        return Verdict(decision, reason, highest, limit, 0.5, score), spans

    # --- comparison with known responses

    def known(self, model: str) -> list[ApiRequest]:
        """The requests of the known responses."""
        common = {"model": model, "temperature": 0, "max_tokens": TOKENS}
        return [
            ApiRequest({**common, "messages": [turn._asdict() for turn in text.messages]}, True)
            if text.messages
            else ApiRequest({**common, "prompt": text.prompt}, False)
            for text, _ in self.detector.known
        ]

    def agree(self, answers: Sequence[tuple[ApiRequest, AnswerChoice]]) -> str:
        """Compare words that arrive with those that were read at fitting, where a response begins in the same way."""
        apart, same, silent = list[float](), 0, 0
        for (api_request, choice), (text, p_wrong) in zip(answers, cycle(self.detector.known)):
            if choice.why_not or not choice.text.startswith(text.response):
                continue
            silent += not choice.tokens
            live = LiveWords(self.detector, text_of(api_request))
            live.add(choice.text, choice.tokens, choice.logprobs)
            live.close()
            places = {(word.start, word.end): word.p_wrong for word in live.words}
            # the last word may go on where the endpoint did not stop
            pairs = [(places.get(place), own) for place, own in zip(text.words[:-1], p_wrong, strict=False)]
            if pairs and all(now is not None for now, _ in pairs):
                same += 1
                apart += [abs(now - own) for now, own in pairs if now is not None]
        if silent:
            raise DetectorError(NO_LOGPROBS, "Choose an endpoint that returns logprobs.")
        mean = float(np.mean(apart)) if apart else 0.0
        if same < max(1, LEAST_KNOWN * len(answers)) or mean > MOST_APART:
            raise DetectorError(
                f"the endpoint is not the model of the detector {self.name}: {same} of {len(answers)} known responses "
                f"begin in the same way, and p_wrong of their words differs by {mean:.3f} on average",
                f"Serve {self.detector.model} in the dtype of the fit, or fit the detector for this model.",
            )
        self.parity = {self.name: {"known": len(answers), "same": same, "words": len(apart), "apart": round(mean, 6)}}
        return f"{self.name} is ready: {same} of {len(answers)} known responses, p_wrong apart by {mean:.1e}"

    def status(self) -> dict[str, Any]:
        """The detector, whether it judges, and counts."""
        about = {"version": self.version, "promise_holds": self.detector.threshold is not None}
        detectors = {self.name: {**about, "card": str(self.detector)}}
        return {"detectors": detectors, "parity": self.parity, "suspended": self.suspended, **self.counts.record()}


def word_desk(config: ServeConfig) -> WordDesk:
    """The desk of a configuration with a detector of words, which it refuses if it cannot be served."""
    detector = config.word_detector()
    path = Path(str(config.words))
    return WordDesk(path.stem, detector, config.counts(), sha256_of(path)[:12])


def word_record(word: JudgedWord) -> dict[str, Any]:
    """A word or a span as responses have it."""
    return {"start": word.start, "end": word.end, "p_wrong": round(word.p_wrong, 6)}


def request_of(api_request: ApiRequest, number: int = 0) -> Text | str:
    """The text of a request without a response, or the reason why its words are not known."""
    try:
        return text_of(api_request, number)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        return f"{CANNOT_BE_JUDGED}: its prompt is not text"


def text_of(api_request: ApiRequest, number: int = 0) -> Text:
    """The text of a request without a response. What is not text is an error."""
    if api_request.chat:
        turns = api_request.data["messages"]
        return Text("", "", messages=tuple(Message(_said(turn["role"]), _content(turn["content"])) for turn in turns))
    prompt = api_request.data["prompt"]
    return Text("", "", _said(prompt[number] if isinstance(prompt, list) else prompt))


def _content(content: Any) -> str:
    """The text of a turn, which may come in parts."""
    if isinstance(content, list):
        return "\n".join(_said(part["text"]) for part in content)
    return "" if content is None else _said(content)


def _said(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
