"""The command that serves a model and adds a verdict to every answer."""

from __future__ import annotations

import json
import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from anchorscope.cli.console import out, path_of, progress
from anchorscope.errors import DetectorError

WORKER = "anchorscope.serve.worker.DetectorWorker"
MIDDLEWARE = "anchorscope.serve.middleware.Verdicts"


def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hub id or folder of the model.")],
    detector: Annotated[
        list[Path],
        typer.Option(
            "--detector",
            "-d",
            metavar="DETECTOR",
            help="Judge answers with DETECTOR, which `detect fit` saved. Repeat the option for several.",
            parser=path_of,
        ),
    ],
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint",
            metavar="URL",
            help="Put a proxy in front of this OpenAI-compatible endpoint instead of starting vLLM. This serves only "
            "detectors that read nothing but log-probabilities.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Listen on this address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Listen on this port.", min=1, max=65535)] = 8000,
    audit: Annotated[
        Path | None,
        typer.Option(
            "--audit", metavar="FILE", help="Append each verdict to FILE as JSON, without texts.", parser=path_of
        ),
    ] = None,
    audit_texts: Annotated[
        bool, typer.Option("--audit-texts", help="Write questions and answers to the --audit file too.")
    ] = False,
    show: Annotated[bool, typer.Option("--print", help="Print the flags for vLLM without starting it.")] = False,
) -> None:
    """Serve a model with vLLM and add a verdict to every answer. Options not listed here are passed to vLLM."""
    with progress("starting", None):
        from anchorscope.serve.config import ServeConfig
        from anchorscope.serve.plan import plan_of
        from anchorscope.serve.wire import private_socket
    config = ServeConfig(ServeConfig.named(detector))
    loaded = config.load()
    plan = plan_of(loaded)  # a detector that cannot be served is refused before anything is started
    if endpoint is not None:
        return _proxy(model, config, endpoint, host, port, audit, audit_texts)
    if find_spec("vllm") is None:
        raise DetectorError(
            "anchorscope serve needs vLLM, which is not installed", "Run: pip install 'anchorscope[vllm]'"
        )
    config = ServeConfig(
        config.detectors,
        private_socket(f"{plan.fingerprint}-{port}"),
        plan.fingerprint,
        str(audit.resolve()) if audit is not None else None,
        audit_texts,
    )
    flags = ["--worker-cls", WORKER, "--middleware", MIDDLEWARE, "--additional-config", json.dumps(config.record())]
    more = list(context.args)
    if not any(option.split("=")[0] == "--dtype" for option in more):
        more += ["--dtype", str(next(iter(loaded.values())).about.model["dtype"])]
    out.print("To start vLLM yourself, add these flags to its own:", style="dim")
    typer.echo(shlex.join(flags))
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", host]
    command += ["--port", str(port)]
    command += [*flags, *more]
    if show:
        return None
    os.execv(sys.executable, command)  # noqa: S606


def _proxy(
    model: str, config: object, endpoint: str, host: str, port: int, audit: Path | None, audit_texts: bool
) -> None:
    """Serve a proxy in front of an endpoint."""
    from anchorscope.serve.config import ServeConfig

    assert isinstance(config, ServeConfig)
    for needed in ("httpx", "uvicorn"):
        if find_spec(needed) is None:
            raise DetectorError(
                f"the proxy needs {needed}, which is not installed", "Run: pip install 'anchorscope[proxy]'"
            )
    if len(config.detectors) > 1:
        raise DetectorError(f"the proxy serves one detector, not {len(config.detectors)}", "Give --detector once.")
    with progress(f"{model}: loading the tokenizer", None):
        from anchorscope.models.load import load_tokenizer
        from anchorscope.models.source import find_model
        from anchorscope.serve.counts import Counts
        from anchorscope.serve.judge import LiveJudge
        from anchorscope.serve.proxy import Proxy, TextDesk, serve_proxy
        from anchorscope.study import ModelSpec

        spec = ModelSpec(id=model)
        tokenizer = load_tokenizer(spec, find_model(spec, Path()))
    ((name, path),) = config.detectors.items()
    judge = LiveJudge.load(name, path, tokenizer)
    judge.prompter  # noqa: B018 — refuses another tokenizer or template
    app = Proxy(endpoint, TextDesk(judge, Counts(audit, audit_texts)), os.environ.get("OPENAI_API_KEY"))
    out.print(f"Verdicts of {name} on http://{host}:{port}/v1", style="dim")
    serve_proxy(app, host, port)
