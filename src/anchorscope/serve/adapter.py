"""The only file that knows vLLM's internals: the batch of its model runner and the names of its requests.

It is written for the versions in `SUPPORTED`, and others are refused. It reads the V1 model runner. The V2 runner, used
by vLLM if Triton is installed, is refused because it has not been tested (checks/gpu_day.md lists each assumption).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from anchorscope.errors import DetectorError
from anchorscope.serve.tap import StepBatch

SUPPORTED = ("0.32",)
OFF = "off"  # of `vllm_xargs: {"anchorscope": "off"}`
_NAME = re.compile(r"(?:(\d+)_)?(?:chat)?cmpl-(.+?)(?:-(\d+))?-[0-9a-f]{8}")


class RequestName(NamedTuple):
    """A request of the engine: which HTTP request it is of, and which of its answers."""

    request: str
    """The id that the middleware gave."""
    prompt: int
    """The number of the prompt."""
    answer: int
    """The number of the answer to it."""


def name_of(internal: str) -> RequestName | None:
    """From the engine's own name of a request; None for one that did not come through the API."""
    found = _NAME.fullmatch(internal)
    return RequestName(found[2], int(found[3] or 0), int(found[1] or 0)) if found else None


def check_version(version: str) -> None:
    """Refuse a version of vLLM that has not been tested."""
    if not any(version == known or version.startswith(f"{known}.") for known in SUPPORTED):
        raise DetectorError(
            f"vLLM {version} has not been tested with this version of anchorscope",
            f"Install vLLM {' or '.join(SUPPORTED)}, or use the proxy: anchorscope serve --endpoint URL",
        )


def check_runner(runner: Any) -> None:
    """Refuse a model runner whose batch is not known."""
    if not hasattr(runner, "query_start_loc") or not hasattr(runner, "input_batch"):
        raise DetectorError(
            f"the model runner {type(runner).__module__} has not been tested with anchorscope",
            "Set the environment variable VLLM_USE_V2_MODEL_RUNNER=0.",
        )


def bounds_of(runner: Any) -> Any:
    """The first row of each request in the forward that begins, and their end; None without a batch (a warm-up)."""
    count = runner.input_batch.num_reqs
    return runner.query_start_loc.cpu[: count + 1] if count else None


def check_settings(config: Any) -> None:
    """Refuse settings of vLLM under which rows would be lost or misread."""
    parallel = config.parallel_config
    mode: Any = getattr(config.compilation_config, "cudagraph_mode", None)
    mixed = mode.mixed_mode() if hasattr(mode, "mixed_mode") else None
    for wrong, what, instead in (
        (getattr(parallel, "data_parallel_size", 1) > 1, "data parallelism", "Start one server per replica instead."),
        (getattr(parallel, "enable_dbo", False), "dual batch overlap", "Remove --enable-dbo."),
        (getattr(mixed, "name", "") == "FULL", "full CUDA graphs of mixed batches", "Remove cudagraph_mode."),
    ):
        if wrong:
            raise DetectorError(f"verdicts have not been tested with {what}", instead)


def batch_of(runner: Any, scheduled: Any, rows: int) -> StepBatch:
    """What the last forward was about. `rows`: tokens that went through the model's code, where it was called."""
    batch = runner.input_batch
    names = [name for name in batch.req_ids if name is not None]
    counts = [scheduled.num_scheduled_tokens[name] for name in names]
    hidden = getattr(runner.execute_model_state, "hidden_states", None)
    return StepBatch(
        names,
        batch.num_computed_tokens_cpu[: len(names)].tolist(),
        counts,
        max(sum(counts), rows, 0 if hidden is None else len(hidden)),
        runner.input_ids.gpu,
    )


def new_requests(scheduled: Any) -> dict[str, int]:
    """Requests that begin, with the length of their prompts; those that want no verdict are left out."""
    found = {}
    for new in scheduled.scheduled_new_reqs:
        extra = getattr(new.sampling_params, "extra_args", None) or {}
        if str(extra.get("anchorscope", "")) != OFF:
            found[new.req_id] = len(new.prompt_token_ids or ())
    return found
