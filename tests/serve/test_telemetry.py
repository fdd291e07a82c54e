"""Verdicts that a real proxy hands to OpenTelemetry's SDK, as a receiver of OTLP gets them over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import _logs, trace
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from anchorscope.serve import telemetry
from anchorscope.serve.audit import AuditLog
from anchorscope.serve.counts import Counts
from anchorscope.serve.telemetry import EVENT
from serve.test_proxy import QUESTIONS, Endpoint, Served
from serving import body_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01"}


class Receiver:
    """Takes logs and traces in OTLP."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.bodies.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def events(self) -> list[Any]:
        bodies = [ExportLogsServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/logs"]
        scopes = [scope for body in bodies for resource in body.resource_logs for scope in resource.scope_logs]
        assert {scope.scope.name for scope in scopes} <= {"anchorscope"}
        return [record for scope in scopes for record in scope.log_records]

    def spans(self) -> list[Any]:
        bodies = [ExportTraceServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/traces"]
        return [s for body in bodies for resource in body.resource_spans for scope in resource.scope_spans
                for s in scope.spans]  # fmt: skip


def read(record: Any) -> dict[str, Any]:
    """The attributes of an event or a span."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in record.attributes}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


class Sdk:
    """The providers of a process, which the process may set once only. Here they are unset after a test."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logs, self.traces = LoggerProvider(), TracerProvider()
        self.logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(f"{url}/v1/logs")))
        self.traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
        monkeypatch.setattr(_logs._internal, "_LOGGER_PROVIDER", self.logs)
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", self.traces)

    def flush(self) -> None:
        assert self.logs.force_flush()
        assert self.traces.force_flush()


@pytest.fixture
def sdk(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sdk]:
    made = Sdk(receiver.url, monkeypatch)
    yield made
    made.logs.shutdown()
    made.traces.shutdown()


class Named(Served):
    """An endpoint that names its responses after the request, as vLLM does, and the proxy before it."""

    identifier = "cmpl-{}"
    cut = False
    """Whether streams end before their answers do."""

    async def endpoint(self, scope: Any, receive: Any, send: Any) -> None:
        body = await body_of(receive)
        data = json.loads(body or b"{}")
        plain = json.dumps({**data, "stream": False}).encode()
        made = json.loads((await Endpoint()(httpx.Request("POST", f"http://e{scope['path']}", content=plain))).content)
        if "choices" in made:
            made["id"] = self.identifier.format(dict(scope["headers"]).get(b"x-request-id", b"").decode())
            made["choices"] = [{**made["choices"][0], "index": index} for index in range(data.get("n") or 1)]
        kind = "text/event-stream" if data.get("stream") else "application/json"
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if not data.get("stream"):
            return await send({"type": "http.response.body", "body": json.dumps(made).encode(), "more_body": False})
        for choice in made["choices"]:
            if self.cut:
                choice["finish_reason"] = None
            chunk = b"data: " + json.dumps({**made, "choices": [choice]}).encode() + b"\n\n"
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    def verdicts(self, headers: dict[str, str] | None = None, **fields: Any) -> list[tuple[Any, int, dict[str, Any]]]:
        """Id of the response, index of the answer and verdict, as a client gets them."""
        data = {"model": "m", "prompt": self.prompt, "temperature": 0, **fields}
        url = f"http://127.0.0.1:{self.port}/v1/completions"
        response = httpx.post(url, json=data, headers=headers)
        assert response.status_code == 200
        lines = response.text.splitlines() if fields.get("stream") else [f"data: {response.text}"]
        parts = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        choices = [(part["id"], choice) for part in parts for choice in part["choices"]]
        return [(name, each["index"], each["anchorscope"]) for name, each in choices if "anchorscope" in each]


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Named]:
    """The proxy, with an audit log that has texts."""
    with Named() as running:
        running.proxy.desk.counts = Counts(AuditLog(tmp_path / "audit.jsonl"), texts=True)
        yield running
        running.proxy.desk.counts.audit.flush()
        assert QUESTIONS[3] in (tmp_path / "audit.jsonl").read_text()


def attributes(name: Any, index: int, verdict: dict[str, Any]) -> dict[str, Any]:
    return {
        "gen_ai.evaluation.name": "it",
        "gen_ai.evaluation.score.value": verdict["p_wrong"],
        "gen_ai.evaluation.score.label": verdict["decision"],
        "gen_ai.response.id": name,
        "anchorscope.choice": index,
    }


@pytest.mark.parametrize("stream", [False, True])
def test_each_verdict_is_one_event_and_one_span_without_texts(sdk, receiver, proxy, stream):
    served = proxy.verdicts(PARENT, stream=stream, n=2)
    served += proxy.verdicts({**PARENT, "x-request-id": "mine"}, stream=stream)
    sdk.flush()
    events, spans = receiver.events(), receiver.spans()
    assert len(served) == 3
    assert served[0][0].startswith("cmpl-")
    assert served[2][0] == "cmpl-mine"  # the id that the client sees, not the one that the endpoint saw
    assert [read(event) for event in events] == [attributes(*each) for each in served]
    assert [read(span) for span in spans] == [attributes(*each) for each in served]
    for event, span in zip(events, spans, strict=True):
        assert event.event_name == EVENT
        assert (event.trace_id.hex(), event.span_id.hex()) == (TRACE, SPAN)
        assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == ("evaluate it", TRACE, SPAN)
        assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 10e9
        assert event.body.WhichOneof("value") is None
    sent = b"".join(body for _, body in receiver.bodies)
    assert b"cmpl-mine" in sent
    assert [word for word in (b"river", b"Hill", b"Danube", b"Dan", b"Question") if word in sent] == []


def test_what_cannot_be_judged_says_so_by_its_code(sdk, receiver, proxy, monkeypatch):
    proxy.verdicts()
    ((_, _, warm),) = proxy.verdicts(temperature=0.7)
    proxy.cut = True
    proxy.verdicts(stream=True)
    proxy.cut = False
    monkeypatch.setattr(proxy.proxy.desk, "read", None)
    proxy.verdicts()
    sdk.flush()
    good, hot, cut, failed = map(read, receiver.events())
    assert "error.type" not in good | hot | cut
    assert "gen_ai.evaluation.explanation" not in good
    assert warm["reason"].startswith("it was not decoded like")
    assert [each["gen_ai.evaluation.explanation"] for each in (hot, cut, failed)] == [
        "other_decoding",
        "no_end",
        "failed",
    ]
    assert failed["error.type"] == "failed"
    assert cut["gen_ai.evaluation.name"] == "anchorscope"  # no detector was asked
    for each in (hot, cut, failed):
        assert each["gen_ai.evaluation.score.label"] == "cannot say"
        assert "gen_ai.evaluation.score.value" not in each
    assert b"0.7" not in b"".join(body for _, body in receiver.bodies)


def test_without_a_client_span_there_is_no_trace_and_a_span_of_the_server_comes_first(sdk, receiver, proxy):
    inside = proxy.proxy.inside
    tracer = sdk.traces.get_tracer("the server's own")

    async def traced(*arguments: Any) -> None:
        with tracer.start_as_current_span("POST"):
            await inside(*arguments)

    proxy.verdicts()
    proxy.proxy.inside = traced
    proxy.verdicts(PARENT)
    sdk.flush()
    alone, under = receiver.events()
    server = next(span for span in receiver.spans() if span.name == "POST")
    assert (alone.trace_id, alone.span_id) == (b"", b"")
    assert (under.trace_id, under.span_id) == (server.trace_id, server.span_id)


def test_an_id_that_cannot_be_encoded_costs_no_event(sdk, receiver, proxy):
    proxy.identifier = "\ud800{}"
    proxy.verdicts()
    sdk.flush()
    (event,) = receiver.events()
    assert "gen_ai.response.id" not in read(event)
    assert read(event)["gen_ai.evaluation.score.label"] == "pass"


def test_nothing_is_made_where_no_sdk_is_configured(receiver, proxy, monkeypatch):
    monkeypatch.setattr(telemetry, "attributes_of", None)
    ((_, _, verdict),) = proxy.verdicts(PARENT)
    assert verdict["decision"] == "pass"
    assert proxy.proxy.desk.counts.incidents == {}
    assert receiver.bodies == []


def test_a_failure_costs_no_verdict_and_is_counted(sdk, proxy, monkeypatch):
    monkeypatch.setattr(telemetry, "attributes_of", None)
    ((_, _, verdict),) = proxy.verdicts(PARENT)
    assert verdict["decision"] == "pass"
    assert proxy.proxy.desk.counts.incidents == {"count failed": 1}


def test_servers_need_no_opentelemetry(monkeypatch):
    assert telemetry.telemetry() is not None
    monkeypatch.delattr(_logs.Logger, "enabled")
    assert telemetry.telemetry() is None
    monkeypatch.setitem(sys.modules, "opentelemetry._logs", None)
    assert telemetry.telemetry() is None
