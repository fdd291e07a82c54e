"""Greedy answers with vLLM, the throughput standard, where it is installed.

It answers the same token ids under the same stop rule as the transformers backend. Its kernels round differently, so
in bfloat16 a few answers differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anchorscope.answers.generate import Generated, stop_tokens
from anchorscope.errors import ModelError
from anchorscope.models.load import Model


class VllmGenerator:
    """Answers prompts with vLLM."""

    def __init__(self, model: Model, max_new_tokens: int, **options: Any) -> None:
        try:
            from vllm import LLM, SamplingParams
        except ImportError:
            raise ModelError("backend: vllm needs vLLM", "Run: pip install 'anchorscope[vllm]'") from None
        if model.source.kind == "gguf":
            raise ModelError(f"{model.name}: GGUF files are read by the transformers backend only")
        self.stops = frozenset(stop_tokens(model).nonzero()[:, 0].tolist())
        options.setdefault("tensor_parallel_size", _devices() if model.spec.device_map else 1)
        self.llm = LLM(
            model=model.source.location,
            revision=model.source.commit,
            dtype=str(model.network.dtype).removeprefix("torch."),
            enable_prefix_caching=True,  # the few-shot prefix is the same for all
            **options,
        )
        self.sampling = SamplingParams(
            temperature=0.0,
            max_tokens=max_new_tokens + 1,
            stop_token_ids=sorted(self.stops),
            logprobs=0,
            detokenize=False,
        )
        self.max_new_tokens = max_new_tokens

    def __call__(self, prompts: Sequence[list[int]]) -> list[Generated]:
        """Answer each prompt."""
        requests = [{"prompt_token_ids": prompt} for prompt in prompts]
        return [
            self._answer(output.outputs[0]) for output in self.llm.generate(requests, self.sampling, use_tqdm=False)
        ]

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


def _devices() -> int:
    """How many GPUs a sharded model is spread over."""
    import torch

    return max(1, torch.cuda.device_count())
