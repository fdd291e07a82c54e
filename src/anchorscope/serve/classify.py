"""Judges the words of finished answers over HTTP: `POST /classify`, in the form token_spans.v1 of semantic-router.

A request has the answer in `inputs`, and `question` and `context` in `parameters`. A reply has the spans of flagged
words. An answer that cannot be judged, or that is too long for the model, is an error and never a reply without spans.
"""

from __future__ import annotations

import asyncio
from typing import Any

from anchorscope.errors import AnchorscopeError, DetectorError
from anchorscope.models.load import Model
from anchorscope.serve.departure import RefusedRequestError, Send
from anchorscope.serve.intercept import (
    Admission,
    Receive,
    Scope,
    answer_json,
    answer_refusal,
    path_of,
    read_object,
)
from anchorscope.words.detector import WordDetector
from anchorscope.words.record import Text

PATH = "/classify"
LABEL = "wrong"


class Classify:
    """An ASGI app that reads answers with a model of its own, one at a time."""

    def __init__(self, detector: WordDetector, model: Model, admission: Admission | None = None) -> None:
        if detector.threshold is None:
            raise DetectorError(
                f"the detector {detector.name} of words has no threshold, so it flags nothing",
                'Fit it with a promise: anchorscope words FILE --fit DETECTOR --at-most "10% false alarms"',
            )
        detector.reader(model)  # refuses another model
        self.detector, self.model, self.admission = detector, model, admission or Admission()
        self.under_way, self._turn = 0, asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, or the start."""
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return None
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        path, method = path_of(scope), scope["method"]
        try:
            self.admission.check_key(scope, path)
            if (method, path) == ("GET", "/health"):
                return await answer_json(send, 200, {"model": self.model.name, "detector": str(self.detector)})
            if (method, path) != ("POST", PATH):
                raise RefusedRequestError(404, f"only POST {PATH} and GET /health are served here")
            if self.under_way >= (self.admission.at_once or self.under_way + 1):
                raise RefusedRequestError(503, "too many requests are under way")
            self.under_way += 1
            try:
                await self._judge(scope, receive, send)
            finally:
                self.under_way -= 1
        except RefusedRequestError as refused:
            await answer_refusal(send, refused)

    async def _judge(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await self.admission.read_body(scope, receive)
        if body is None:  # the client left
            return
        text = text_of(read_object(scope, body))
        async with self._turn:
            spans = await asyncio.to_thread(self.spans, text)
        await answer_json(send, 200, {"spans": spans, "model": self.model.name})

    def spans(self, text: Text) -> list[dict[str, Any]]:
        """The flagged words of an answer. One that cannot be judged is refused."""
        try:
            (judged,) = self.detector(self.model, [text])
        except AnchorscopeError as error:
            raise RefusedRequestError(422, str(error)) from None
        if judged.reason:
            raise RefusedRequestError(422, f"this answer cannot be judged: {judged.reason}")
        return [
            {
                "start": span.start,
                "end": span.end,
                "label": LABEL,
                "score": round(span.p_wrong, 6),
                "text": text.response[span.start : span.end],
            }
            for span in judged.flagged()
        ]


def text_of(data: dict[str, Any]) -> Text:
    """The text of a request. Anything but texts is refused."""
    given = data.get("parameters")
    parameters = given if isinstance(given, dict) else {}
    answer, question, context = data.get("inputs"), parameters.get("question"), parameters.get("context")
    if given is not None and parameters is not given:
        raise RefusedRequestError(400, "'parameters' is not an object")
    if not isinstance(answer, str) or not answer.strip():
        raise RefusedRequestError(400, "'inputs' must be the text of an answer")
    for name, value in (("question", question), ("context", context)):
        if not isinstance(value, str | None):
            raise RefusedRequestError(400, f"'{name}' is not a text")
    return Text("", answer, question or "", passage=context or None)
