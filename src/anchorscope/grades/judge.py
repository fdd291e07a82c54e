"""A judge: a language model behind an OpenAI-compatible endpoint says whether an answer is right.

Requests run side by side and are made again when the endpoint is busy, broken or silent. What it said is kept in the
run, found by what it was asked, so nothing is paid for twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from anchorscope.errors import GradeError, printable, reason_of
from anchorscope.grades.grading import grader
from anchorscope.grades.record import Grade, Judgement
from anchorscope.store.files import is_local, write_text
from anchorscope.study import GradesSpec, JudgeSpec

ALLOWED = "ANCHORSCOPE_JUDGE_URL"
"""The environment variable that names the endpoint which may have a key: a study alone cannot send a key anywhere."""
KEY_NAMES = ("_API_KEY", "_TOKEN")  # how the name of a variable with a key ends: a study cannot ask for other secrets
MAX_TOKENS = 16
LARGEST = 8 << 20  # bytes of a reply that are read
KEPT_AT_ONCE = 100  # replies, on a store
SHOWN_ALIASES = 30  # accepted answers in a prompt; some questions have hundreds of spellings
NO_VERDICT = "the judge gave no verdict"
UNCLEAR = "the judge cannot tell"
_LONGEST_WAIT = 60.0
_WORDS: dict[str, Judgement] = {
    "right": "right",
    "correct": "right",
    "wrong": "wrong",
    "incorrect": "wrong",
    "unclear": "cannot_tell",
}
_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class Case(NamedTuple):
    answer: str
    accepted: Sequence[str]
    question: str


def filled(prompt: str, case: Case) -> str:
    accepted = "; ".join(dict.fromkeys(case.accepted[:SHOWN_ALIASES]))
    parts = {"question": case.question, "accepted": accepted, "answer": case.answer}
    return re.sub(r"\{(question|accepted|answer)\}", lambda match: parts[match[1]], prompt)


def verdict(said: str) -> Judgement | None:
    """The first word of a reply that is a verdict, if it comes early; None for anything else."""
    for word in re.findall(r"[a-z]+", said.casefold())[:8]:
        if word in _WORDS:
            return _WORDS[word]
    return None


class Judge:
    """Judges answers. `file` keeps what was said; None keeps it in memory."""

    def __init__(self, spec: JudgeSpec, file: Path | None = None, sleep: Callable[[float], None] = time.sleep) -> None:
        self.spec, self._file, self._sleep = spec, file, sleep
        import httpx  # slow to import, and most runs have no judge

        key = key_of(spec)
        # redirects are not followed: they would carry the key to another host
        self._client = httpx.Client(headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=spec.timeout)
        self._said: dict[str, str] = _kept(file) if file else {}
        self._lock, self._unkept = threading.Lock(), list[str]()
        self._rules = grader()

    def __call__(self, cases: Sequence[Case]) -> list[Grade]:
        """The grades of some answers, in order; each different question and answer is asked once."""
        prompts = [filled(self.spec.prompt, case) for case in cases]
        new = [prompt for prompt in dict.fromkeys(prompts) if self._name(prompt) not in self._said]
        with ThreadPoolExecutor(self.spec.at_once) as pool:
            try:
                for _ in pool.map(self._ask, new):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                self._keep(least=1)
        return [self._grade(case, self._said[self._name(p)]) for case, p in zip(cases, prompts, strict=True)]

    def _grade(self, case: Case, said: str) -> Grade:
        """With the place of an accepted answer, where the rules find one in what is right."""
        if not case.answer.strip():
            return Grade("wrong")
        judgement = verdict(said)
        if judgement == "right":
            return replace(self._rules(*case), judgement="right", reason=None)
        if judgement == "wrong":
            return Grade("wrong")
        return Grade("cannot_tell", reason=NO_VERDICT if judgement is None else UNCLEAR)

    def _name(self, prompt: str) -> str:
        return hashlib.sha256(f"{self.spec.model}\n{prompt}".encode(errors="surrogatepass")).hexdigest()

    def _ask(self, prompt: str) -> None:
        """Ask until there is a reply; keep it. A reply without a verdict is asked for once more, then kept as it is."""
        reply = self._reply(prompt)
        if verdict(reply) is None:
            reply = self._reply(prompt)
        with self._lock:
            self._said[self._name(prompt)] = reply
            if self._file is not None:
                self._unkept.append(json.dumps({"asked": self._name(prompt), "said": printable(reply, 200)}) + "\n")
        self._keep(least=1 if self._file is None or is_local(self._file) else KEPT_AT_ONCE)

    def _keep(self, least: int) -> None:
        """Keep what was said: appended to a file on disk, as an object more on a store, where nothing is appended."""
        with self._lock:
            if self._file is None or len(self._unkept) < least:
                return
            lines = "".join(self._unkept)
            if is_local(self._file):
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(lines)
            else:
                name = hashlib.sha256(lines.encode()).hexdigest()[:16]
                write_text(self._file.with_name(f"{self._file.stem}-{name}{self._file.suffix}"), lines)
            self._unkept.clear()

    def _reply(self, prompt: str) -> str:
        body = {
            "model": self.spec.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": MAX_TOKENS,
        }
        why = ""
        for turn in range(self.spec.tries):
            try:
                return self._post(body)
            except _TryAgainError as error:
                why = str(error)
                if turn + 1 < self.spec.tries:
                    self._sleep(min(_LONGEST_WAIT, error.wait if error.wait is not None else 2.0**turn))
        raise GradeError(
            f"the judge at {self.spec.base_url} did not answer in {self.spec.tries} tries: {why}",
            "Its judgements so far are kept. Run the same command again when it can be reached.",
        )

    def _post(self, body: dict[str, Any]) -> str:
        import httpx

        reply = b""
        try:
            with self._client.stream("POST", f"{self.spec.base_url.rstrip('/')}/chat/completions", json=body) as answer:
                for part in answer.iter_bytes():
                    reply += part
                    if len(reply) > LARGEST:
                        raise _TryAgainError(f"it sent more than {LARGEST >> 20} MiB")
        except (httpx.HTTPError, httpx.InvalidURL) as error:  # no connection, a timeout, half a reply
            raise _TryAgainError(reason_of(error) or type(error).__name__) from None
        if answer.status_code in _BUSY:
            raise _TryAgainError(f"it answered {answer.status_code}", _wait(answer.headers.get("Retry-After", "")))
        if not answer.is_success:
            raise self._refused(answer.status_code, printable(reply[:2000].decode(errors="replace"), 200))
        return _text(reply)

    def _refused(self, status: int, reply: str) -> GradeError:
        hint = {
            401: f"The key is taken from the environment variable {self.spec.key or '(none: give judge.key)'}.",
            403: "The key has no access to this model.",
            404: "Check judge.base_url (it ends in /v1 for most) and judge.model.",
        }.get(status, "Check judge.model and judge.prompt.")
        return GradeError(f"the judge at {self.spec.base_url} refused: {status} {reply}", hint)


class _TryAgainError(Exception):
    """What may be mended by asking again; `wait`: seconds the endpoint asked for."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


def _wait(retry_after: str) -> float | None:
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        return None


def _text(body: bytes) -> str:
    """What a reply says; a reply of another shape is like half a reply."""
    try:
        content = json.loads(body)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise _TryAgainError(
            f"it sent something that is not a reply: {printable(body[:80].decode(errors='replace'))}"
        ) from None
    return content if isinstance(content, str) else ""


def key_of(spec: JudgeSpec) -> str | None:
    """The key, if the study names one; refused where the environment does not say that this endpoint may have it."""
    if spec.key is None:
        return None
    if not spec.key.endswith(KEY_NAMES):
        raise GradeError(
            f"the study wants to send the environment variable {spec.key} to {spec.base_url}; only a variable whose "
            f"name ends in {' or '.join(KEY_NAMES)} is taken for a judge's key",
            "Keep the key in such a variable, for example export JUDGE_API_KEY=…, and write key: JUDGE_API_KEY.",
        )
    host = urlsplit(spec.base_url).hostname or ""
    if host not in ("localhost", "127.0.0.1", "::1") and os.environ.get(ALLOWED, "").rstrip(
        "/"
    ) != spec.base_url.rstrip("/"):
        raise GradeError(
            f"the study wants to send the key in {spec.key} to {spec.base_url}",
            f"If that is what you want: export {ALLOWED}={spec.base_url}",
        )
    value = os.environ.get(spec.key)
    if not value:
        raise GradeError(f"the environment variable {spec.key}, which holds the judge's key, is not set")
    return value


JUDGED = "judged.jsonl"
"""What a judge said, in the run's folder."""


def grading_of(spec: GradesSpec, root: Path, ask: bool = True) -> Callable[[Sequence[Case]], list[Grade]]:
    """How a study grades answers: by rules, or by its judge. With nothing to `ask`, the judge needs no key."""
    if ask and spec.judge is not None:
        return Judge(spec.judge, root / JUDGED)
    rules = grader(spec.grader) if spec.judge is None else grader()
    return lambda cases: [rules(*case) for case in cases]


def _kept(file: Path) -> dict[str, str]:
    """What was said before; a last line that was cut off by a kill is left out."""
    replies = {}
    for path in file.parent.glob(f"{file.stem}*{file.suffix}"):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
                replies[row["asked"]] = row["said"]
            except (ValueError, KeyError, TypeError):
                continue
    return replies
