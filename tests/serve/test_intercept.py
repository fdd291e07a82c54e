"""Verdicts in responses of a made-up server: whole and streamed; what the client did not ask for; and every mishap."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from anchorscope.detectors.reasons import OTHER_TEXT
from anchorscope.serve.audit import AuditLog
from anchorscope.serve.counts import Counts
from anchorscope.serve.intercept import Admission, Intercepted
from anchorscope.serve.judge import LiveJudge
from anchorscope.serve.live_desk import LiveDesk
from anchorscope.serve.plan import plan_of
from anchorscope.serve.wire import RowBook
from serving import HEARD, Client, MadeUpEngine, detector_of, save
from serving_server import ANSWER, TOKENIZER, Server

QUESTION = "Which river is near Hill?"


class Stand:
    """A server with verdicts, and a client."""

    def __init__(self, tmp_path: Any, models: Sequence[str] = ("it",)) -> None:
        path = save(detector_of(farthest=9.0), tmp_path / "guard")
        self.judge = LiveJudge.load("guard", path, TOKENIZER)
        plan = plan_of({"guard": self.judge.detector})
        self.book = RowBook(plan.fingerprint)
        self.desk = LiveDesk(
            {"guard": self.judge}, {"guard": path}, self.book, Counts(AuditLog(tmp_path / "audit.jsonl")), models
        )
        self.server = Server(self.book, MadeUpEngine(plan))
        self.client = Client(Intercepted(self.server, self.desk))
        self.prompt = self.judge.prompter(QUESTION).text

    def asked(self, **fields: Any) -> dict[str, Any]:
        return {"model": "it", "prompt": self.prompt, "temperature": 0, **fields}

    def choices(self, **fields: Any) -> list[dict[str, Any]]:
        status, _, body = self.client.post(self.asked(**fields))
        assert status == 200
        return json.loads(body)["choices"]


@pytest.fixture
def stand(tmp_path) -> Iterator[Stand]:
    made = Stand(tmp_path)
    yield made
    made.desk.close()


def test_a_whole_response_carries_its_verdict_and_nothing_else_new(stand):
    status, headers, body = stand.client.post(stand.asked())
    (choice,) = json.loads(body)["choices"]
    assert status == 200
    assert choice["anchorscope"]["decision"] in ("flag", "pass")
    assert headers[b"x-anchorscope"].decode() == choice["anchorscope"]["decision"]
    assert int(headers[b"content-length"]) == len(body)
    assert not {"token_ids", "prompt_token_ids"} & choice.keys()
    assert choice["logprobs"] is None
    assert stand.server.asked[0]["return_token_ids"] is True
    assert not stand.book.expected  # nothing is left behind


def test_a_client_keeps_what_it_asked_for(stand):
    (choice,) = stand.choices(logprobs=0, return_token_ids=True)
    assert choice["logprobs"]["token_logprobs"]
    assert choice["token_ids"]


def test_a_stream_carries_the_same_verdict_in_the_last_chunk(stand):
    (whole,) = stand.choices()
    status, headers, body = stand.client.post(stand.asked(stream=True))
    events = [json.loads(line[6:]) for line in body.decode().split("\n\n") if line.startswith("data: {")]
    verdicts = [event["choices"][0].get("anchorscope") for event in events]
    assert (status, verdicts[0], verdicts[-1]) == (200, None, whole["anchorscope"])
    assert body.endswith(b"data: [DONE]\n\n")
    assert headers[b"x-anchorscope"] == b"in the last chunk"
    assert all("token_ids" not in event["choices"][0] for event in events)


def test_several_prompts_and_answers_each_have_their_own(stand):
    choices = stand.choices(prompt=[stand.prompt, "Hello"], n=2)
    decisions = [choice["anchorscope"]["decision"] for choice in choices]
    assert decisions[0] == decisions[1] != "cannot say"
    assert decisions[2:] == ["cannot say"] * 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"echo": True}, "echo"),
        ({"use_beam_search": True}, "beam search"),
        ({"suffix": "x"}, "suffix"),
        ({"model": "an-adapter"}, "answered by another model"),
        ({"prompt": "Once upon a time"}, "not the detector's prompt"),
        ({"temperature": None}, 'Send "temperature": 0'),
        ({"temperature": 0.7}, "fitted on greedy answers"),
    ],
)
def test_what_cannot_be_judged_says_so(stand, fields, reason):
    for choice in stand.choices(**fields):
        assert choice["anchorscope"]["decision"] == "cannot say"
        assert reason in choice["anchorscope"]["reason"]


def test_an_answer_that_was_cut_off_is_not_judged(stand):
    stand.server.finish = "length"
    ids = TOKENIZER(ANSWER, add_special_tokens=False).input_ids
    prompt = TOKENIZER(stand.prompt, add_special_tokens=False).input_ids
    choice = {"index": 0, "text": ANSWER, "finish_reason": "length", "prompt_token_ids": prompt, "token_ids": ids,
              "logprobs": {"token_logprobs": [-1.0] * len(ids), "tokens": ["x"] * len(ids)}}  # fmt: skip
    stand.server.reply = json.dumps({"model": "it", "choices": [choice]}).encode()
    assert "max_tokens" in stand.choices()[0]["anchorscope"]["reason"]


def test_rows_that_do_not_arrive_end_in_cannot_say(stand, monkeypatch):
    monkeypatch.setattr(RowBook.rows, "__defaults__", (0.05,))
    stand.server.lose_rows = True
    (choice,) = stand.choices()
    assert choice["anchorscope"]["reason"] == "its states did not arrive"
    assert stand.book.late == 1


def test_a_detector_that_fails_does_not_fail_the_request(stand, monkeypatch):
    monkeypatch.setattr(LiveJudge, "read", lambda self, made: 1 / 0)
    (choice,) = stand.choices()
    assert (choice["anchorscope"]["decision"], choice["anchorscope"]["reason"]) == ("cannot say", "the detector failed")


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[1, 2]",
        b'"text"',
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": "\xff"}',
        b"[" * 99_999,
        b'{"a": %s}' % (b"9" * 5000),
    ],
)
def test_requests_that_are_not_understood_are_refused(stand, body):
    status, headers, _ = stand.client.post(body)
    assert (status, headers[b"x-anchorscope"], stand.server.asked) == (400, b"not judged", [])


@pytest.mark.parametrize("other_paths", [False, True])
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", path) for path in ("/v1/completions/", "//v1/completions", "/v1/./completions", "/x/../v1/completions",
                                 "/v1/completions?a", "/V1/Completions", "/v1/completions ", "/v1/completions;x",
                                 "/v1/completions\x00", "/anchorscope/status/../../v1/completions",
                                 "//any.host/v1/completions", "/v1//completions", "/v1/completions#x",
                                 "/v1/completions\\", "/v1/completions%2F", "/v1%2Fcompletions", "/v1/%63ompletions")]
    + [(method, "/v1/completions") for method in ("post", "Post", "PUT", "PATCH", "GET")],
)  # fmt: skip
def test_no_spelling_leads_around_the_verdict(stand, method, path, other_paths):
    app = Intercepted(stand.server, stand.desk, Admission(other_paths=other_paths))
    status, headers, _ = Client(app).ask(method, path, json.dumps(stand.asked()).encode())
    assert (status, headers[b"x-anchorscope"], stand.server.asked) == (404, b"not judged", [])


def test_paths_whose_answers_are_not_judged_are_closed_unless_opened(stand):
    body = json.dumps(stand.asked()).encode()
    assert stand.client.post(body, "/v1/responses")[0] == 404
    opened = Client(Intercepted(stand.server, stand.desk, Admission(other_paths=True)))
    status, headers, _ = opened.post(body, "/v1/responses")
    assert (status, headers[b"x-anchorscope"]) == (200, b"not judged")


def test_a_key_a_size_and_a_number_of_requests_can_be_demanded(stand):
    locked = Client(Intercepted(stand.server, stand.desk, Admission(api_key="secret")))
    assert locked.post(stand.asked())[0] == 401
    assert locked.post(stand.asked(), headers=[(b"authorization", b"Bearer secret")])[0] == 200
    assert locked.get("/health")[0] == 200
    assert Client(Intercepted(stand.server, stand.desk, Admission(body_bytes=50))).post(stand.asked())[0] == 413
    busy = Intercepted(stand.server, stand.desk, Admission(at_once=2))
    busy.under_way = 2
    assert Client(busy).post(stand.asked())[0] == 503


@pytest.mark.parametrize("reply", [b"null", b"not json", b"[]", b'{"choices": 3}', b'{"choices": [{"index": "x"}]}'])
def test_responses_that_are_not_understood_go_through_and_are_no_pass(stand, reply):
    stand.server.reply = reply
    status, headers, _ = stand.client.post(stand.asked())
    assert status == 200
    assert headers[b"x-anchorscope"] == b"cannot say"


def test_errors_and_health_go_through_and_say_that_they_are_not_judged(stand):
    status, headers, _ = stand.client.post(stand.asked(model="missing"))
    assert (status, headers[b"x-anchorscope"]) == (404, b"not judged")
    assert stand.client.get("/health")[2] == b"fine"


def test_a_request_that_cannot_be_judged_goes_through_as_it_was(stand):
    stand.client.post(stand.asked(echo=True))
    assert stand.server.asked[0] == stand.asked(echo=True)


def test_odd_texts_and_numbers_do_no_harm(stand):
    body = json.dumps(stand.asked(user="half a pair: \ud800")).encode()
    assert stand.client.post(body)[0] == 200
    assert "whole number" in stand.choices(n="1")[0]["anchorscope"]["reason"]


def test_the_text_that_the_client_sees_is_the_one_that_is_judged(stand):
    prompt = TOKENIZER(stand.prompt, add_special_tokens=False).input_ids
    ids = TOKENIZER(ANSWER + "\n", add_special_tokens=False).input_ids
    choice = {"index": 0, "text": ANSWER[:4], "finish_reason": "stop", "prompt_token_ids": prompt, "token_ids": ids,
              "logprobs": {"token_logprobs": [-1.0] * len(ids), "tokens": ["x"] * len(ids)}}  # fmt: skip
    stand.server.reply = json.dumps({"model": "it", "choices": [choice]}).encode()
    assert stand.choices()[0]["anchorscope"]["reason"] == OTHER_TEXT


def test_a_client_keeps_its_name_of_the_request(stand):
    _, _, body = stand.client.post(stand.asked(), headers=[(b"X-Request-Id", b"mine")])
    assert json.loads(body)["id"] == "mine"


def test_verdicts_that_are_switched_off_are_marked_and_counted_and_can_be_forbidden(stand, tmp_path):
    off = stand.asked(vllm_xargs={"anchorscope": "off"})
    status, headers, body = stand.client.post(off)
    assert (status, headers[b"x-anchorscope"]) == (200, b"off")
    assert "anchorscope" not in json.loads(body)["choices"][0]
    assert "return_token_ids" not in stand.server.asked[0]
    assert stand.desk.counts.incidents["off"] == 1
    stand.desk.counts.audit.flush()
    assert '"decision": "off"' in (tmp_path / "audit.jsonl").read_text(encoding="utf-8")
    strict = Client(Intercepted(stand.server, stand.desk, Admission(off_allowed=False)))
    assert strict.post(off)[0] == 403


def test_status_and_audit_log_count_verdicts_without_texts(stand, tmp_path):
    served = [stand.choices()[0]["anchorscope"], stand.choices(prompt="Hello")[0]["anchorscope"]]
    status = json.loads(stand.client.get("/anchorscope/status")[2])
    assert sum(status["verdicts"]["guard"].values()) == 2
    assert status["detectors"]["guard"]["version"] == stand.judge.version
    stand.desk.counts.audit.flush()
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o077 == 0  # its owner's alone
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [{k: v for k, v in line.items() if k not in ("time", "request")} for line in lines] == served
    assert served[1]["decision"] == "cannot say"
    assert not any(QUESTION in json.dumps(line) for line in lines)


def test_a_full_disk_under_the_audit_log_costs_no_verdict(stand):
    stand.desk.counts.audit = AuditLog(Path("/dev/full"))
    (choice,) = stand.choices()
    stand.desk.counts.audit.flush()
    assert choice["anchorscope"]["decision"] in ("pass", "flag")
    assert json.loads(stand.client.get("/anchorscope/status")[2])["incidents"]["audit failed"] == 1


def test_a_detector_with_the_same_weights_is_loaded_again_and_another_is_not(stand, tmp_path, monkeypatch):
    monkeypatch.setattr("anchorscope.serve.live_desk.LOOK", 0.0)
    before = stand.choices()[0]["anchorscope"]
    save(stand.judge.detector.at(0.9), tmp_path / "guard")
    after = stand.choices()[0]["anchorscope"]
    assert after["base_rate"] == 0.9
    assert after["version"] != before["version"]
    save(detector_of(HEARD, seed=5), tmp_path / "guard")
    assert stand.choices()[0]["anchorscope"]["version"] == after["version"]


# --- rows on their way
