"""Verdicts for OpenTelemetry: the event `gen_ai.evaluation.result`, and a span with the same attributes.

The names are those of the semantic conventions for generative AI, whose status is still *development*. The span is for
tools that take traces and no events. Both go to the providers that the process has configured. Where it has configured
none, nothing is made. No text of a request or an answer is in them: a code stands for the reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from anchorscope import __version__
from anchorscope.detectors.reasons import CODES, FAILED

log = logging.getLogger("vllm.anchorscope")
EVENT = "gen_ai.evaluation.result"


@dataclass
class Correlation:
    """Where verdicts belong: the request, and the answer to it that is judged now."""

    headers: Iterable[tuple[bytes, bytes]] = ()
    """Of the request; they name the span of the client."""
    response: Any = None
    """Id of the response, as the client sees it."""
    choice: int | None = None
    """Index of the answer, where it is known."""


CORRELATION: ContextVar[Correlation] = ContextVar("anchorscope_correlation")
"""Set for each request. What the request starts sees it too."""


class Telemetry:
    """Hands verdicts to OpenTelemetry."""

    def __init__(self) -> None:
        """Take loggers and tracers that work as soon as the process configures its providers."""
        from opentelemetry import propagate, trace
        from opentelemetry._logs import get_logger

        self._propagate, self._trace = propagate, trace
        self._logger = get_logger("anchorscope", __version__)
        self._tracer = trace.get_tracer("anchorscope", __version__)

    def put(self, record: dict[str, Any], took: float) -> None:
        """Hand over a verdict as it is served. `took`: seconds."""
        events = self._logger.enabled(event_name=EVENT)
        spans = not isinstance(self._trace.get_tracer_provider(), self._trace.ProxyTracerProvider)
        if not events and not spans:
            return
        correlation, now = CORRELATION.get(Correlation()), time.time_ns()
        context, attributes = self._parent(correlation), attributes_of(record, correlation)
        if events:
            self._logger.emit(timestamp=now, context=context, event_name=EVENT, attributes=attributes)
        if spans:
            name, start = f"evaluate {attributes['gen_ai.evaluation.name']}", now - int(1e9 * took)
            self._tracer.start_span(name, context, attributes=attributes, start_time=start).end(now)

    def _parent(self, correlation: Correlation) -> Any:
        """The context of the request: the server's own span where it has one, and else the client's."""
        if self._trace.get_current_span().get_span_context().is_valid:
            return None
        return self._propagate.extract(
            {name.decode("latin-1"): value.decode("latin-1") for name, value in correlation.headers}
        )


def telemetry() -> Telemetry | None:
    """What hands verdicts to OpenTelemetry; None where its API is missing or too old."""
    try:
        from opentelemetry._logs import Logger
    except ImportError:
        return None
    if not hasattr(Logger, "enabled"):
        log.info("anchorscope: no verdict is sent to OpenTelemetry, because opentelemetry-api is older than 1.45")
        return None
    return Telemetry()


def attributes_of(record: dict[str, Any], correlation: Correlation) -> dict[str, Any]:
    """The attributes of a verdict, without those that it does not have."""
    attributes = {
        "gen_ai.evaluation.name": record["detector"] or "anchorscope",
        "gen_ai.evaluation.score.value": record["p_wrong"],
        "gen_ai.evaluation.score.label": record["decision"],
        "gen_ai.evaluation.explanation": record["code"] or None,
        "error.type": record["code"] if record["code"] == CODES[FAILED] else None,
        "gen_ai.response.id": correlation.response if isinstance(correlation.response, str) else None,
        "anchorscope.choice": correlation.choice,
    }
    return {name: value for name, value in attributes.items() if value is not None}
