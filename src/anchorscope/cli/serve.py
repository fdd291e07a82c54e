"""The command that serves a model and adds a verdict to every answer."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorscope.cli.console import out, path_of, progress
from anchorscope.errors import DetectorError
from anchorscope.serve.lora import named

if TYPE_CHECKING:
    from anchorscope.serve.config import ServeConfig
    from anchorscope.serve.endpoint import EndpointDesk
    from anchorscope.serve.forward import EndpointLimits
    from anchorscope.serve.intercept import Admission


def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hub id or folder of the model.")],
    detector: Annotated[
        list[Path] | None,
        typer.Option(
            "--detector",
            "-d",
            metavar="DETECTOR",
            help="Judge answers with DETECTOR, which `detect fit` saved; those of a LoRA adapter with "
            "DETECTOR@ADAPTER. Repeat the option for several.",
            parser=path_of,
        ),
    ] = None,
    words: Annotated[
        Path | None,
        typer.Option(
            "--words",
            metavar="DETECTOR",
            help="Judge the words of every response with DETECTOR, which `words --fit` saved.",
            parser=path_of,
        ),
    ] = None,
    classify: Annotated[
        bool,
        typer.Option(
            "--classify",
            help="With --words, judge finished answers of any model: POST /classify, in the form token_spans.v1 of "
            "semantic-router. MODEL reads them, and vLLM is not started.",
        ),
    ] = False,
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
    no_off: Annotated[bool, typer.Option("--no-off", help="Refuse requests that switch verdicts off (403).")] = False,
    pass_other_paths: Annotated[
        bool,
        typer.Option(
            "--pass-other-paths",
            help="Serve paths whose answers are not judged too, such as /v1/responses. Without it they are 404.",
        ),
    ] = False,
    max_body: Annotated[
        int, typer.Option("--max-body", metavar="MIB", help="Refuse larger requests (413).", min=1)
    ] = 16,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", envvar="ANCHORSCOPE_API_KEY", help="Require this key of clients."),
    ] = None,
    max_concurrent: Annotated[
        int,
        typer.Option("--max-concurrent", help="With --endpoint, refuse more requests at a time (503).", min=1),
    ] = 512,
    max_connections: Annotated[
        int,
        typer.Option("--max-connections", help="With --endpoint, open at most this many connections to it.", min=1),
    ] = 512,
    connect_timeout: Annotated[
        float,
        typer.Option(
            "--connect-timeout",
            metavar="SECONDS",
            help="With --endpoint, wait at most this long for a connection to it (503).",
            min=0.1,
        ),
    ] = 10.0,
    recheck: Annotated[
        float,
        typer.Option(
            "--recheck",
            metavar="MINUTES",
            help="With --endpoint, compare the endpoint with the detector's known answers again after this time.",
            min=0.1,
        ),
    ] = 10.0,
    served_name: Annotated[
        list[str] | None,
        typer.Option(
            "--served-name",
            metavar="NAME",
            help="With --endpoint, judge answers of the model under this name. Repeat the option for several "
            "(default: the first name in /v1/models).",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Print the flags for vLLM without starting it.")] = False,
) -> None:
    """Serve a model with vLLM and add a verdict to every answer. Options not listed here are passed to vLLM."""
    if (words is None) == (not detector):
        raise DetectorError("a server judges answers or words", "Give --detector or --words.")
    if classify and (words is None or endpoint is not None):
        raise DetectorError("--classify needs a detector of words, and no endpoint", "Give --words alone.")
    if show and (classify or endpoint is not None):
        raise DetectorError("--print is for vLLM, and this starts another server", "Leave --print out.")
    if classify and (audit is not None or context.args):
        given = "--audit" if audit is not None else context.args[0]
        raise DetectorError(f"--classify does not know {given}", "Leave it out: it has no audit log and no vLLM.")
    detectors, adapters = named(detector or [])  # before the imports, which take seconds
    if adapters and endpoint is not None:
        raise DetectorError("the proxy knows models by name alone", "Leave @ADAPTER out, and give --served-name.")
    if classify or endpoint is not None:
        _check_proxy()
    with progress("starting", None):
        from anchorscope.serve.config import ServeConfig
    config = ServeConfig(
        detectors,
        adapters,
        words=str(words.resolve()) if words is not None else None,
        audit=str(audit.resolve()) if audit is not None else None,
        audit_texts=audit_texts,
        off_allowed=not no_off,
        other_paths=pass_other_paths,
        body_bytes=max_body << 20,
    )
    admission = replace(config.admission, at_once=max_concurrent, api_key=api_key)
    if classify and words is not None:
        return _classify(model, words, admission, host, port)
    if endpoint is not None:
        from anchorscope.serve.forward import EndpointLimits
        from anchorscope.serve.word_desk import word_desk

        limits = EndpointLimits(max_connections, connect_timeout)
        desk = word_desk(config) if config.words else _answer_desk(model, config)
        return _proxy(desk, endpoint, host, port, admission, limits, served_name or [], recheck)
    flags, dtype = _flags(config, port, show)
    more = list(context.args)
    if not any(option.split("=")[0] == "--dtype" for option in more):
        more += ["--dtype", dtype]
    out.print("To start vLLM yourself, add these flags to its own:", style="dim")
    typer.echo(shlex.join(flags))
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", host]
    command += ["--port", str(port)]
    command += [*flags, *more]
    if show:
        return None
    if api_key is not None:
        os.environ["VLLM_API_KEY"] = api_key  # where `ps` does not show it
    os.execv(sys.executable, command)  # noqa: S606


def _flags(config: ServeConfig, port: int, show: bool) -> tuple[list[str], str]:
    """Flags of anchorscope for vLLM, and the dtype of the fit. A detector that cannot be served is refused.

    vLLM must be here, unless the flags are only shown.
    """
    from anchorscope.serve.plugin import vllm_flags

    made = vllm_flags(config, str(port))
    if not show and find_spec("vllm") is None:
        raise DetectorError(
            "anchorscope serve needs vLLM, which is not installed", "Run: pip install 'anchorscope[vllm]'"
        )
    return made


def _check_proxy() -> None:
    for needed in ("httpx", "uvicorn"):
        if find_spec(needed) is None:
            raise DetectorError(
                f"this server needs {needed}, which is not installed", "Run: pip install 'anchorscope[proxy]'"
            )


def _answer_desk(model: str, config: ServeConfig) -> EndpointDesk:
    """Judges short answers by a detector that `detect fit` saved."""
    if len(config.detectors) > 1:
        raise DetectorError(f"the proxy serves one detector, not {len(config.detectors)}", "Give --detector once.")
    from anchorscope.serve.plan import plan_of

    plan_of(config.load())  # a detector that cannot be served is refused before anything is started
    with progress(f"{model}: loading the tokenizer", None):
        from anchorscope.models.load import load_tokenizer
        from anchorscope.models.source import find_model
        from anchorscope.serve.judge import LiveJudge
        from anchorscope.serve.proxy import TextDesk
        from anchorscope.study import ModelSpec

        spec = ModelSpec(id=model)
        tokenizer = load_tokenizer(spec, find_model(spec, Path()))
    ((name, path),) = config.detectors.items()
    judge = LiveJudge.load(name, path, tokenizer)
    judge.prompter  # noqa: B018 — refuses another tokenizer or template
    return TextDesk(judge, config.counts())


def _classify(model: str, words: Path, admission: Admission, host: str, port: int) -> None:
    """Serve the judgement of finished answers, which the model reads itself."""
    from anchorscope.models.opened import open_model
    from anchorscope.serve.classify import Classify
    from anchorscope.serve.proxy import serve_proxy
    from anchorscope.words.detector import WordDetector

    detector = WordDetector.load(words)
    with progress(f"{model}: loading", None):
        app = Classify(detector, open_model(model, dtype=detector.dtype), admission)
    out.print(f"Spans of {detector.name} on http://{host}:{port}/classify", style="dim")
    serve_proxy(app, host, port)


def _proxy(
    desk: EndpointDesk,
    endpoint: str,
    host: str,
    port: int,
    admission: Admission,
    limits: EndpointLimits,
    names: list[str],
    minutes: float,
) -> None:
    """Serve a proxy in front of an endpoint."""
    from anchorscope.serve.proxy import Proxy, serve_proxy

    app = Proxy(
        endpoint,
        desk,
        os.environ.get("OPENAI_API_KEY"),
        limits=limits,
        admission=admission,
        names=names,
        minutes=minutes,
        ready=lambda: out.print(f"Verdicts of {desk.name} on http://{host}:{port}/v1", style="dim"),
    )
    serve_proxy(app, host, port)
