"""Answers with vLLM, greedy or drawn, the throughput standard, where it is installed.

It answers the same token ids under the same stop rule as the transformers backend. Its kernels round differently, so
in bfloat16 a few answers differ. It draws with numbers of its own: other answers, from the same distribution.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from tqdm.std import tqdm

from anchorscope.answers.generate import Generated, check_sampling, stop_tokens
from anchorscope.errors import ModelError
from anchorscope.models.batches import plan_batches
from anchorscope.models.load import Model
from anchorscope.progress import Advance, in_parts, uncounted


class VllmGenerator:
    """Answers prompts with vLLM."""

    def __init__(self, model: Model, max_new_tokens: int, **options: Any) -> None:
        try:
            from vllm import LLM, SamplingParams
        except ImportError:
            raise ModelError(
                "backend: vllm needs vLLM, which is not installed", "Run: pip install 'anchorscope[vllm]'"
            ) from None
        if model.source.kind == "gguf":
            raise ModelError(f"{model.name}: vLLM cannot read GGUF files; use backend: transformers")
        self.stops = frozenset(stop_tokens(model).nonzero()[:, 0].tolist())
        options.setdefault("tensor_parallel_size", _devices() if model.spec.device_map else 1)
        options.setdefault("enforce_eager", _on_cpu())  # where compiling takes minutes and gains little
        options.setdefault("load_format", "safetensors")  # never a pickle
        self.llm = LLM(
            model=model.source.location,
            revision=model.source.commit,
            trust_remote_code=False,
            dtype=str(model.network.dtype).removeprefix("torch."),
            enable_prefix_caching=True,  # the few-shot prefix is the same for all
            logprobs_mode="raw_logprobs",  # the model's own, before the temperature
            **options,
        )
        limits = {"max_tokens": max_new_tokens + 1, "stop_token_ids": sorted(self.stops)}
        self._sampling = partial(SamplingParams, **limits, logprobs=0, detokenize=False)
        self.max_new_tokens = max_new_tokens

    def __call__(self, prompts: Sequence[Sequence[int]], *, advance: Advance = uncounted) -> list[Generated]:
        outputs = self._outputs(prompts, self._sampling(temperature=0.0), advance)
        return [self._answer(output.outputs[0]) for output in outputs]

    def sample(
        self,
        prompts: Sequence[list[int]],
        answers: int,
        temperature: float,
        keys: Sequence[str],
        *,
        top_p: float = 1.0,
        first: int = 0,
        advance: Advance = uncounted,
    ) -> list[list[Generated]]:
        """So many answers to each prompt, drawn at a temperature, from seeds that its key and its number give.

        Log-probabilities are those of the model itself, at temperature 1. vLLM's prefix cache has the whole blocks of a
        prompt computed once. Below 0.01 it takes 0.01 for the temperature.
        """
        check_sampling(answers, temperature, top_p, len(keys) == len(prompts))
        # one request for each answer, as vLLM itself makes of one request for several
        numbers = range(first, first + answers)
        asked = [(prompt, seed_of(key) + n) for prompt, key in zip(prompts, keys, strict=True) for n in numbers]
        by_row: dict[int, Generated] = {}
        in_requests = in_parts(advance, answers)
        for batch in self._calls([len(prompt) for prompt, _ in asked]):
            sampling = [self._sampling(temperature=temperature, top_p=top_p, seed=asked[row][1]) for row in batch]
            outputs = self._outputs([asked[row][0] for row in batch], sampling, in_requests)
            by_row.update({row: self._answer(output.outputs[0]) for row, output in zip(batch, outputs, strict=True)})
        return [[by_row[i * answers + n] for n in range(answers)] for i in range(len(prompts))]

    def _calls(self, lengths: Sequence[int]) -> list[list[int]]:
        """Which requests with seeds go together: all; on a CPU so few that none is read in parts, where vLLM fails."""
        if not _on_cpu():
            return [list(range(len(lengths)))] if lengths else []
        return plan_batches(lengths, self.llm.llm_engine.vllm_config.scheduler_config.max_num_batched_tokens)

    def _outputs(self, prompts: Sequence[Sequence[int]], sampling: Any, advance: Advance) -> Any:
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        return self.llm.generate(requests, sampling, use_tqdm=_counting(advance))

    def close(self) -> None:
        """Stop the engine: it holds nearly all of the GPU's memory, and the passes after it need that."""
        core: Any = getattr(self.llm.llm_engine, "engine_core", None)
        if hasattr(core, "shutdown"):
            core.shutdown()
        del self.llm

    def _answer(self, output: Any) -> Generated:
        ids = list(output.token_ids)
        logprobs = [step[token].logprob for token, step in zip(ids, output.logprobs, strict=True)]
        end = next((i for i, token in enumerate(ids) if token in self.stops), None)
        stop = self.max_new_tokens if end is None else min(end, self.max_new_tokens)
        return Generated(ids[:stop], logprobs[:stop], end is not None)


def _counting(advance: Advance) -> Any:
    """The bar that vLLM moves while it answers, as one that draws nothing and counts finished requests."""

    class Counting(tqdm):  # type: ignore[misc]
        def update(self, n: float | None = 1) -> bool | None:
            if self.iterable is None:  # vLLM has another bar, around the requests that it takes in
                advance(int(n or 0))
            moved: bool | None = super().update(n)
            return moved

        def display(self, *arguments: Any, **options: Any) -> None:
            pass

        def close(self) -> None:
            pass

    return Counting


def seed_of(key: str) -> int:
    """A seed of 48 bits."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=6).digest(), "little")


def _on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def _devices() -> int:
    """How many GPUs a sharded model is spread over."""
    import torch

    return max(1, torch.cuda.device_count())
