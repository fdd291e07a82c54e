"""A real LiteLLM proxy with the guardrail, in an environment of its own: started, asked and stopped."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import httpx
import yaml

from helpers.steps import ROOT
from helpers.vllm_server import free_port

START = 180  # seconds that the proxy may take to start
NAME = "anchorscope"


class Seen(NamedTuple):
    """What a client received."""

    status: int
    body: bytes

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The objects in it: one, or those of a stream."""
        lines = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")] or [self.body]
        return [json.loads(line) for line in lines if line.strip() != b"[DONE]"]

    @property
    def choices(self) -> dict[int, tuple[str, dict[str, Any] | None]]:
        """The text of each answer and the last verdict on it."""
        found: dict[int, tuple[str, dict[str, Any] | None]] = {}
        for choice in (choice for part in self.parts for choice in part.get("choices", ())):
            text, verdict = found.get(choice["index"], ("", None))
            said = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
            found[choice["index"]] = (text + (said.get("content") or ""), choice.get(NAME, verdict))
        return found

    def holds(self, text: str) -> bool:
        """Whether a text is anywhere in the client's bytes, as it is or as JSON escapes it."""
        return any(form.encode() in self.body for form in (text, json.dumps(text)[1:-1]))


class LitellmProxy:
    """The proxy as a context manager."""

    def __init__(self, python: str, work: Path, servers: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        """`servers`: the model and the address of a server by LiteLLM's name of it; `settings`: of the guardrail."""
        self.port, self.key, self.log = free_port(), f"sk-{secrets.token_hex(16)}", work / "litellm.log"
        guardrail = f"{NAME}.serve.guardrail.AnchorscopeGuardrail"
        models = [
            {"model_name": name, "litellm_params": {"model": model, "api_base": f"{url}/v1", "api_key": "none"}}
            for name, (model, url) in servers.items()
        ]
        own = {"guardrail": guardrail, "mode": "post_call", "default_on": True, **settings}
        guardrails = [{"guardrail_name": NAME, "litellm_params": own}]
        file = work / "config.yaml"
        config = {"model_list": models, "guardrails": guardrails, "router_settings": {"disable_cooldowns": True}}
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        program = str(Path(python).parent / "litellm")
        self.command = [program, "--config", str(file), "--host", "127.0.0.1", "--port", str(self.port)]

    def __enter__(self) -> LitellmProxy:
        own = {"PYTHONPATH": str(ROOT / "src"), "LITELLM_MASTER_KEY": self.key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(self.command, stdout=file, stderr=file, env={**os.environ, **own})
        end = time.monotonic() + START
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/health/liveliness", timeout=2).status_code == 200:
                    return self
            except httpx.HTTPError:
                pass
            time.sleep(0.5)
        self.stop()
        raise SystemExit(f"LiteLLM did not start: {self.log.read_text(encoding='utf-8')[-2000:]}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """What a client sends along."""
        return {"authorization": f"Bearer {self.key}"}

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
