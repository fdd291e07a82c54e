"""A vLLM server in an environment of its own, with and without verdicts: started, loaded, watched and stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import httpx

TICK = os.sysconf("SC_CLK_TCK")
START = 600  # seconds that a server may take to start
FLAGS = ("--max-model-len", "1024", "--max-num-seqs", "32")
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
               "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}  # fmt: skip
ONE_PROCESS = ("--distributed-executor-backend", "uni")
"""Flags of an engine that has its worker in its own process. In two, both spin while they wait for each other, so that
the CPU time is twice that of the work. It needs the last line of the environment."""


class RefusedError(Exception):
    """A server that did not start; the last lines of its log."""


class VllmServer:
    """A server as a context manager. Without a detector it is vLLM's own."""

    def __init__(
        self,
        python: str,
        model: Path,
        log: Path,
        detectors: Sequence[Path] = (),
        flags: Sequence[str] = (),
        endpoint: str | None = None,
        port: int | None = None,
        words: Path | None = None,
    ) -> None:
        """`port`: the same one gives the same configuration, so that compiled code is found again.

        `words`: a detector of words, instead of detectors of answers.
        """
        self.port = port or free_port()
        self.log, self.model = log, model
        asked = [part for detector in detectors for part in ("--detector", str(detector))]
        asked += ["--words", str(words)] if words is not None else []
        if endpoint is not None:
            command = ["-m", "anchorscope", "serve", str(model), *asked, "--endpoint", endpoint]
        elif asked:
            command = ["-m", "anchorscope", "serve", str(model), *asked, *FLAGS, *flags]
        else:
            own = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--dtype", "float32"]
            command = [*own, *FLAGS, *flags]
        self.command = [python, *command, "--port", str(self.port)]
        self.environment = {**os.environ, **ENVIRONMENT}

    def __enter__(self) -> VllmServer:
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                self.command, stdout=file, stderr=file, env=self.environment, start_new_session=True
            )
        end = time.monotonic() + START
        while time.monotonic() < end:
            if self.process.poll() is not None or "startup failed" in self.said():
                self.stop()
                raise RefusedError(self.told())
            try:
                if httpx.get(f"{self.url}/health", timeout=2).status_code == 200:
                    return self
            except httpx.HTTPError:
                pass
            time.sleep(1)
        self.stop()
        raise RefusedError("it did not start in time")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def said(self) -> str:
        """Its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def told(self) -> str:
        """What it said of anchorscope last; else its last lines."""
        lines = self.said().splitlines()
        own = [line for line in lines if "anchorscope:" in line or "error:" in line or "DetectorError" in line]
        return "\n".join(own[-2:] or lines[-5:])

    def stop(self) -> None:
        """Kill it with all its processes."""
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def pids(self) -> list[int]:
        """Its processes: those of its session."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if os.getsid(int(entry.name)) == self.process.pid:
                        found.append(int(entry.name))
                except (ProcessLookupError, PermissionError):
                    continue
        return found

    def named(self, part: str) -> int:
        """The process that vLLM gave this name, such as EngineCore or Worker."""
        for pid in self.pids():
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(f"VLLM::{part}".encode()):
                return pid
        raise LookupError(f"there is no process {part}")

    def still(self) -> None:
        """Stop all its processes, which spin while they wait, until `again`."""
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP)

    def again(self) -> None:
        """Let all its processes go on."""
        for pid in self.pids():
            os.kill(pid, signal.SIGCONT)

    def cpu(self, front: bool = False) -> float:
        """Seconds of CPU time that it took so far: all its processes, or the one in front alone, which speaks HTTP."""
        total = 0
        for pid in [self.process.pid] if front else self.pids():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            total += int(fields[11]) + int(fields[12])
        return total / TICK

    def megabytes(self) -> float:
        """Memory that it holds (resident)."""
        total = 0.0
        for pid in self.pids():
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            held = [line for line in status.splitlines() if line.startswith("VmRSS")]
            total += sum(int(line.split()[1]) for line in held) / 1024
        return total


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class Reply(NamedTuple):
    """What came back of one request."""

    status: int
    """HTTP's status; 0 where the client left or the connection broke."""
    seconds: float
    """How long it took."""
    body: dict[str, Any]
    """The response; of a stream its last chunk with a choice, with the text and the judged words of all chunks."""
    headers: Mapping[str, str]
    """Its headers."""
    chunks: Sequence[float] = ()
    """Seconds from one part of a stream to the next; first those until the first part."""


async def ask(
    client: httpx.AsyncClient, data: Mapping[str, Any], path: str = "/v1/completions", leave_after: float | None = None
) -> Reply:
    """One request. `leave_after`: seconds after which the client hangs up."""
    start = time.perf_counter()
    try:
        if data.get("stream"):
            return await asyncio.wait_for(_streamed(client, data, path, start), leave_after)
        response = await asyncio.wait_for(client.post(path, json=dict(data)), leave_after)
        body = response.json() if response.headers.get("content-type", "").startswith("application/json") else {}
        return Reply(response.status_code, time.perf_counter() - start, body, response.headers)
    except (TimeoutError, httpx.HTTPError) as error:
        return Reply(0, time.perf_counter() - start, {"error": f"{type(error).__name__}: {error}"}, {})


async def _streamed(client: httpx.AsyncClient, data: Mapping[str, Any], path: str, start: float) -> Reply:
    text: dict[int, str] = {}
    words: dict[int, list[Any]] = {}
    last: dict[int, Any] = {}
    arrived = [start]
    async with client.stream("POST", path, json=dict(data)) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:]).get("choices", ()):
                    index = choice["index"]
                    part = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
                    text[index] = text.get(index, "") + part
                    words.setdefault(index, []).extend(choice.get("anchorscope_words", ()))
                    last[index] = choice
                    arrived += [time.perf_counter()] if part else []
        choices = [
            {**choice, "text": text[index], "anchorscope_words": words[index]} for index, choice in sorted(last.items())
        ]
        chunks = [after - before for before, after in pairwise(arrived)]
        seconds = time.perf_counter() - start
        return Reply(response.status_code, seconds, {"choices": choices}, response.headers, chunks)


async def load(
    url: str, asked: Sequence[Mapping[str, Any]], at_once: int, timeout: float = 600, **how: Any
) -> list[Reply]:
    """Requests, so many at a time; the replies in the order of the requests."""
    gate = asyncio.Semaphore(at_once)
    # No connection is used twice: a server closes idle ones after some seconds, and one that a client left is not clean
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=timeout, limits=limits) as client:

        async def one(data: Mapping[str, Any]) -> Reply:
            async with gate:
                own = dict(data)
                return await ask(client, own, own.pop("path", "/v1/completions"), own.pop("leave_after", None))

        return list(await asyncio.gather(*(one(data) for data in asked)))
