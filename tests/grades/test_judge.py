from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import anchorscope.grades.judge as judge_module
from anchorscope.errors import GradeError
from anchorscope.grades.judge import LARGEST, NO_VERDICT, UNCLEAR, Case, Judge, filled, verdict
from anchorscope.study import JudgeSpec
from anchorscope.study.asking import JUDGE_PROMPT

Reply = tuple[int, bytes, dict[str, str]] | None


def says(text: str) -> Reply:
    return 200, json.dumps({"choices": [{"message": {"content": text}}]}).encode(), {}


class Endpoint(ThreadingHTTPServer):
    """An endpoint that answers as it is told to; None: not at all, for a second."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.keys: list[str | None] = []
        self.bodies: list[dict[str, Any]] = []
        self.reply: Callable[[str, int], Reply] = lambda prompt, turn: says("RIGHT")
        self.at_once, self.most_at_once = 0, 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *args: Any) -> None:
        """A client that has gone is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][0]["content"]
        with server.lock:
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
            turn = server.asked.count(prompt)
            server.asked.append(prompt)
            server.bodies.append(body)
            server.keys.append(self.headers.get("Authorization"))
        reply = server.reply(prompt, turn) if self.path == "/v1/chat/completions" else (404, b"no such path", {})
        time.sleep(0.02 if reply else 1)
        with server.lock:
            server.at_once -= 1
        if reply is None:
            self.close_connection = True
            return
        status, content, headers = reply
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def spec_of(endpoint: Endpoint, **fields: Any) -> JudgeSpec:
    return JudgeSpec(base_url=endpoint.url, model="judge-1", **fields)


CASES = [Case("Paris", ["Paris", "paris"], "capital of France?"), Case("Rome", ["Oslo"], "capital of Norway?")]


def by_answer(prompt: str, turn: int) -> Reply:
    return says("Right." if "grade: Paris" in prompt else "**WRONG**, it is Oslo")


def test_answers_are_judged_side_by_side_once_each_and_kept(endpoint: Endpoint, tmp_path: Path):
    endpoint.reply = by_answer
    many = [*CASES, *(Case(f"Rome {i}", ["Oslo"], "capital of Norway?") for i in range(20)), *CASES]
    judge = Judge(spec_of(endpoint, at_once=4), tmp_path / "judged.jsonl")
    grades = judge(many)
    assert [g.judgement for g in grades] == ["right"] + ["wrong"] * 21 + ["right", "wrong"]
    assert (grades[0].alias, grades[0].start, grades[0].end) == ("Paris", 0, 5)  # the rules find the place
    assert len(endpoint.asked) == len(set(endpoint.asked)) == 22
    assert 1 < endpoint.most_at_once <= 4
    assert endpoint.bodies[0]["model"] == "judge-1"
    assert endpoint.bodies[0]["temperature"] == 0
    assert endpoint.keys[0] is None
    with (tmp_path / "judged.jsonl").open("a") as file:
        file.write('{"asked": "cut o')  # as a kill leaves it
    assert Judge(spec_of(endpoint), tmp_path / "judged.jsonl")(many) == grades
    assert len(endpoint.asked) == 22
    Judge(JudgeSpec(base_url=endpoint.url, model="judge-2"), tmp_path / "judged.jsonl")(CASES)
    assert len(endpoint.asked) == 24  # another judge is asked anew


def test_on_a_store_what_was_said_is_kept_some_at_a_time(endpoint: Endpoint, s3: Path, monkeypatch):
    monkeypatch.setattr(judge_module, "KEPT_AT_ONCE", 3)
    many = [Case(f"Rome {i}", ["Oslo"], "capital of Norway?") for i in range(10)]
    endpoint.reply = lambda prompt, turn: (
        (401, b"no", {}) if "Rome 9" in prompt and turn < 1 else by_answer(prompt, turn)
    )
    with pytest.raises(GradeError):
        Judge(spec_of(endpoint, at_once=1), s3 / "judged.jsonl")(many)
    assert len(list(s3.glob("judged-*.jsonl"))) == 3
    grades = Judge(spec_of(endpoint, at_once=1), s3 / "judged.jsonl")(many)
    assert [grade.judgement for grade in grades] == ["wrong"] * 10
    assert len(endpoint.asked) == 11
    assert len(list(s3.glob("judged-*.jsonl"))) == 4


def test_what_a_prompt_says_is_what_it_is_given(endpoint: Endpoint):
    case = Case("{accepted} of {question}", ["a", "b"], "Who {answer}?")
    prompt = filled(JUDGE_PROMPT, case)
    assert "Question: Who {answer}?" in prompt
    assert "right: a; b" in prompt
    assert "grade: {accepted} of {question}" in prompt


@pytest.mark.parametrize(
    ("said", "judgement"),
    [
        ("RIGHT", "right"),
        ("correct.", "right"),
        ("**Wrong**", "wrong"),
        ("The answer is incorrect", "wrong"),
        ('{"verdict": "WRONG"}', "wrong"),
        ("UNCLEAR", "cannot_tell"),
        ("", None),
        ("I would rather not say whether it may be so or that", None),
        ("copyright", None),
    ],
)
def test_a_verdict_is_a_word(said: str, judgement: str | None):
    assert verdict(said) == judgement


FAILURES: dict[str, Reply] = {
    "busy": (429, b"slow down", {"Retry-After": "3"}),
    "broken": (500, b"oops", {}),
    "overloaded": (503, b"", {}),
    "silent": None,
    "truncated": (200, b'{"choices": [{"mess', {}),
    "cut off": (200, b"{}", {"Content-Length": "500"}),
    "another shape": (200, b'{"error": "no"}', {}),
    "not JSON": (200, b"<html>", {}),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_an_endpoint_that_fails_twice_is_asked_again(failure: str, endpoint: Endpoint):
    endpoint.reply = lambda prompt, turn: FAILURES[failure] if turn < 2 else by_answer(prompt, turn)
    waits: list[float] = []
    judge = Judge(spec_of(endpoint, timeout=0.5, at_once=1), sleep=waits.append)
    assert [g.judgement for g in judge(CASES)] == ["right", "wrong"]
    assert waits == ([3, 3, 3, 3] if failure == "busy" else [1, 2, 1, 2])


@pytest.mark.parametrize("failure", FAILURES)
def test_an_endpoint_that_goes_on_failing_stops_the_run_and_loses_nothing(
    failure: str, endpoint: Endpoint, tmp_path: Path
):
    endpoint.reply = lambda prompt, turn: by_answer(prompt, turn) if "Paris" in prompt else FAILURES[failure]
    judge = Judge(spec_of(endpoint, timeout=0.5, tries=3, at_once=1), tmp_path / "j", sleep=lambda seconds: None)
    with pytest.raises(GradeError, match="in 3 tries") as caught:
        judge(CASES)
    assert "Run the same command again" in caught.value.hint
    endpoint.reply = by_answer
    before = len(endpoint.asked)
    again = Judge(spec_of(endpoint), tmp_path / "j")
    assert [g.judgement for g in again(CASES)] == ["right", "wrong"]
    assert len(endpoint.asked) == before + 1  # Paris was kept


def test_nothing_listens(tmp_path: Path):
    spec = JudgeSpec(base_url="http://127.0.0.1:9/v1", model="m", tries=2)
    with pytest.raises(GradeError, match=r"127\.0\.0\.1:9"):
        Judge(spec, sleep=lambda seconds: None)(CASES)


@pytest.mark.parametrize(
    ("status", "hint"), [(401, "environment variable"), (403, "access"), (404, "base_url"), (400, "judge.model")]
)
def test_what_asking_again_does_not_mend_is_said_at_once(status: int, hint: str, endpoint: Endpoint):
    endpoint.reply = lambda prompt, turn: (status, b"refused because", {})
    with pytest.raises(GradeError, match=f"{status} refused because") as caught:
        Judge(spec_of(endpoint, at_once=1))(CASES[:1])
    assert hint in caught.value.hint
    assert len(endpoint.asked) == 1


def test_nonsense_is_asked_for_once_more_and_then_cannot_be_told(endpoint: Endpoint):
    endpoint.reply = lambda prompt, turn: says("purple monkey" if "Paris" in prompt else "UNCLEAR")
    grades = Judge(spec_of(endpoint))(CASES)
    assert [(g.judgement, g.reason) for g in grades] == [("cannot_tell", NO_VERDICT), ("cannot_tell", UNCLEAR)]
    assert len(endpoint.asked) == 3


def test_a_key_goes_only_where_the_environment_lets_it(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_API_KEY", "s3cret")
    Judge(spec_of(endpoint, key="THE_API_KEY"))(CASES[:1])  # this machine
    assert endpoint.keys == ["Bearer s3cret"]
    far = JudgeSpec(base_url="https://judge.example.org/v1", model="m", key="THE_API_KEY")
    with pytest.raises(GradeError, match="wants to send the key in THE_API_KEY") as caught:
        Judge(far)
    assert "export ANCHORSCOPE_JUDGE_URL=https://judge.example.org/v1" in caught.value.hint
    monkeypatch.setenv("ANCHORSCOPE_JUDGE_URL", "https://judge.example.org/v1/")
    Judge(far)
    monkeypatch.delenv("THE_API_KEY")
    with pytest.raises(GradeError, match="is not set"):
        Judge(far)


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "PATH", "DATABASE_URL", "JUDGE_KEY"])
def test_only_a_variable_that_is_named_as_a_key_is_sent(name: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, "s3cret")
    monkeypatch.setenv("ANCHORSCOPE_JUDGE_URL", endpoint.url)
    with pytest.raises(GradeError, match=f"wants to send the environment variable {name}") as caught:
        Judge(spec_of(endpoint, key=name))(CASES[:1])
    assert "JUDGE_API_KEY" in caught.value.hint
    assert endpoint.asked == []


def test_a_reply_without_an_end_is_not_read_to_its_end(endpoint: Endpoint):
    endpoint.reply = lambda prompt, turn: (200, b" " * (LARGEST + 100), {})
    with pytest.raises(GradeError, match="it sent more than 8 MiB"):
        Judge(spec_of(endpoint, tries=1))(CASES[:1])


def test_a_redirect_is_not_followed(endpoint: Endpoint):
    endpoint.reply = lambda prompt, turn: (307, b"", {"Location": f"{endpoint.url}/elsewhere"})
    with pytest.raises(GradeError, match="307"):
        Judge(spec_of(endpoint))(CASES[:1])
    assert len(endpoint.asked) == 1
