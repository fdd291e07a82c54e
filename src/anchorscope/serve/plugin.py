"""The flags that vLLM's server needs, and a plugin of vLLM that adds them where the environment names a detector.

vLLM loads plugins in each of its processes. It logs one that cannot be imported and goes on, so nothing is imported
here that may be missing. An error in `register` stops vLLM: a server that should judge never starts without verdicts.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anchorscope.serve.config import ServeConfig

DETECTORS, WORDS = "ANCHORSCOPE_DETECTOR", "ANCHORSCOPE_WORDS"
"""The environment variables: paths of detectors of answers, separated as in PATH, or the path of one of words.

A path may end in @ADAPTER.
"""
WORKER = "anchorscope.serve.worker.DetectorWorker"
MIDDLEWARE = "anchorscope.serve.middleware.Verdicts"
WORDS_MIDDLEWARE = "anchorscope.serve.middleware.Words"
OURS = ("--worker-cls", "--additional-config")  # flags that vLLM takes once
SERVERS = {"api_server.py", "entry.py"}
RUST = "VLLM_USE_RUST_FRONTEND"

log = logging.getLogger("vllm.anchorscope")


def vllm_flags(config: ServeConfig, name: str) -> tuple[list[str], str]:
    """Flags for vLLM's server, and the dtype of the fit. `name`: what tells its workers' socket from others."""
    import json
    from dataclasses import replace

    if config.words:
        needed, dtype = ["--middleware", WORDS_MIDDLEWARE], config.word_detector().dtype
    else:
        from anchorscope.serve.plan import plan_of
        from anchorscope.serve.wire import private_socket

        loaded = config.load()
        plan = plan_of(loaded)
        needed = ["--worker-cls", WORKER, "--middleware", MIDDLEWARE]
        dtype = str(next(iter(loaded.values())).about.model["dtype"])
        config = replace(config, socket=private_socket(f"{plan.fingerprint}-{name}"), plan=plan.fingerprint)
    return [*needed, "--additional-config", json.dumps(config.record())], dtype


def register() -> None:
    """Add the flags to the command of vLLM's server, before it reads them."""
    detectors, words = (os.environ.get(name, "") for name in (DETECTORS, WORDS))
    if not detectors and not words:
        return
    if any(flag in sys.argv for flag in (MIDDLEWARE, WORDS_MIDDLEWARE)):
        return  # `anchorscope serve` gave them, or this is a process of such a server
    if sys.argv[1:2] != ["serve"] and Path(sys.argv[0]).name not in SERVERS:
        log.warning("anchorscope: only the answers of vLLM's server get verdicts, and this is another program")
        return
    from anchorscope.errors import DetectorError
    from anchorscope.serve.config import ServeConfig
    from anchorscope.serve.lora import named

    if detectors and words:
        raise DetectorError("a server judges answers or words", f"Set {DETECTORS} or {WORDS}.")
    given = [option.replace("_", "-") for option in sys.argv]
    if "--grpc" in given or os.environ.get(RUST, "0") not in ("", "0", "false", "False"):
        raise DetectorError(
            "the gRPC server and the Rust front end of vLLM know no middleware, so nothing would be judged",
            f"Leave out --grpc and {RUST}.",
        )
    if taken := [flag for flag in OURS if any(option.startswith(flag) for option in given)]:
        raise DetectorError(f"anchorscope sets {taken[0]}, and it is given too", f"Leave {taken[0]} out.")
    paths = [Path(path) for path in detectors.split(os.pathsep) if path]
    config = ServeConfig(*named(paths), words=str(Path(words).expanduser().resolve()) if words else None)
    flags, dtype = vllm_flags(config, str(os.getpid()))
    sys.argv += flags
    log.info("anchorscope: judging with %s, fitted in %s", ", ".join(config.detectors) or words, dtype)
