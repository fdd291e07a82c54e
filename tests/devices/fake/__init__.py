"""Published models at their real size, on GPUs that are not there.

torch's FakeTensorMode computes shapes, dtypes and devices, and no numbers. A tensor on the wrong device raises, and 32
billion parameters take no memory. What it cannot do:

- follow a branch that a number decides: generation asks which rows have ended, and whether all logits are finite;
- go backward on a GPU that is not there: torch's autograd asks it for its streams. Saliency goes through on the CPU;
- go with inference mode, which is taken off here;
- tell weights that are shared: a model whose head is its embeddings cannot be put over several GPUs.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from inspect import unwrap
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from anchorscope.models.load import Model
from anchorscope.models.sites import sites_of
from anchorscope.models.source import ModelSource
from anchorscope.study import ModelSpec
from anchorscope.traces import attention
from devices.compiled import compiled

ALIGNED = 16  # numbers
BLOCK = 512  # bytes: CUDA's allocator gives memory in multiples of these


class PromptSize(NamedTuple):
    """Tokens of a question of TriviaQA in a study's prompt, by SmolLM2's tokenizer."""

    shared: int = 69
    """Those that all questions begin with."""
    own: int = 24
    """The question and what follows it."""
    answer: int = 6
    """The answer."""


class Published(NamedTuple):
    """A published model: what its configuration file says."""

    id: str
    """On the hub."""
    family: str
    """Its model_type."""
    gpus: int
    """On how many 80 GB GPUs the study that comes with the package puts it."""
    config: dict[str, Any]
    """Sizes."""

    @property
    def prompt(self) -> PromptSize:
        """In its study: four examples, with Qwen3 in a chat that does not think."""
        return PromptSize(114, 31) if self.family == "qwen3" else PromptSize()


_LLAMA = {"vocab_size": 128256, "intermediate_size": 8192, "num_key_value_heads": 8, "tie_word_embeddings": True,
          "max_position_embeddings": 131072, "rms_norm_eps": 1e-5}  # fmt: skip
_QWEN = {"vocab_size": 151936, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False,
         "max_position_embeddings": 40960, "rms_norm_eps": 1e-6}  # fmt: skip
PUBLISHED = {
    "llama-3.2-1b": Published("meta-llama/Llama-3.2-1B", "llama", 1, _LLAMA | {
        "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "head_dim": 64,
    }),
    "llama-3.2-3b": Published("meta-llama/Llama-3.2-3B", "llama", 1, _LLAMA | {
        "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 24, "head_dim": 128,
    }),
    "qwen3-8b": Published("Qwen/Qwen3-8B", "qwen3", 1, _QWEN | {
        "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 12288,
    }),
    "qwen3-32b": Published("Qwen/Qwen3-32B", "qwen3", 2, _QWEN | {
        "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64, "intermediate_size": 25600,
    }),
}  # fmt: skip


@lru_cache(maxsize=1)
def _install() -> None:
    compiled("fake_guard", Path(__file__).with_name("guard.cpp")).install()


class _NoDevice(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Fake tensors, whatever devices this process knows: a pretend one makes no GPU."""

    avoid_device_init = True


@contextmanager
def fake_gpus() -> Iterator[None]:
    """Within it, tensors have no numbers, and every CUDA device is there."""
    _install()
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(_without_inference_mode())
        stack.enter_context(patch.object(torch.nn.functional, "scaled_dot_product_attention", _attention))
        stack.enter_context(patch.object(attention, "scaled_dot_product_attention", _attention))
        stack.enter_context(patch.object(torch.Tensor, "numpy", _numpy))
        stack.enter_context(_NoDevice(allow_non_fake_inputs=True))
        yield


def _numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """Zeros, as there are no numbers; from the CPU alone, as ever."""
    if not isinstance(tensor, FakeTensor):
        return np.asarray(tensor.detach())
    if tensor.device.type != "cpu":
        raise TypeError(f"can't convert {tensor.device} device type tensor to numpy")
    return np.zeros(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """The kernel that torch takes on CUDA where there is a mask: the memory-efficient one.

    A torch without CUDA would choose one that writes all scores out. As on CUDA, a mask whose rows are no multiple of
    16 long is copied into longer ones.
    """
    if enable_gqa:
        key, value = (part.repeat_interleave(query.shape[1] // part.shape[1], dim=1) for part in (key, value))
    if attn_mask is not None:
        keys = attn_mask.shape[-1]
        if keys % ALIGNED:
            attn_mask = torch.nn.functional.pad(attn_mask, (0, -keys % ALIGNED))[..., :keys]
        attn_mask = attn_mask.expand(*query.shape[:2], query.shape[2], keys)
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    needs_gradient = torch.is_grad_enabled() and query.requires_grad
    attended: torch.Tensor = kernel(query, key, value, attn_mask, needs_gradient, dropout_p, is_causal, scale=scale)[0]
    return attended


@contextmanager
def _without_inference_mode() -> Iterator[None]:
    """Fake tensors of a device that is not there do not go with it: take it off from our functions."""
    with ExitStack() as stack:
        for module in [module for name, module in sys.modules.items() if name.startswith("anchorscope.")]:
            for place in [module, *(value for value in vars(module).values() if isinstance(value, type))]:
                for name, value in list(vars(place).items()):
                    if isinstance(value, FunctionType) and value.__code__.co_filename.endswith("_contextlib.py"):
                        stack.enter_context(patch.object(place, name, unwrap(value)))
        yield


def fake_model(name: str, gpus: int, tokenizer: Any) -> Model:
    """A published model in bfloat16, over so many GPUs (0: on the CPU). Call it, and use it, within `fake_gpus`.

    The tokenizer is another one: its tokens are the first of the model's vocabulary.
    """
    from accelerate import dispatch_model  # type: ignore[import-untyped]
    from transformers import AutoConfig, AutoModelForCausalLM

    published = PUBLISHED[name]
    config = AutoConfig.for_model(published.family, **published.config)
    layers = config.num_hidden_layers
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    devices = [f"cuda:{number}" for number in range(gpus)] or ["cpu"]
    first, last = devices[0], devices[-1]
    head = first if config.tie_word_embeddings else last
    places = {"model.embed_tokens": first, "model.rotary_emb": first, "model.norm": last, "lm_head": head}
    places |= {f"model.layers.{i}": devices[i * len(devices) // layers] for i in range(layers)}
    for part, device in places.items():
        _put(network.get_submodule(part), device)
    network.tie_weights()
    if gpus > 1:
        network = dispatch_model(network, places, force_hooks=True)
    source = ModelSource("folder", name, None, published.family, layers, config.hidden_size, config.num_attention_heads)
    spec = ModelSpec(id=published.id, name=name, dtype="bfloat16")
    return Model(spec, source, network, tokenizer, sites_of(published.family), published.family == "llama", {})


def _put(module: torch.nn.Module, device: str) -> None:
    """All of a module's tensors, without numbers, on a device."""
    for part in module.modules():
        for name, tensor in part._parameters.items():
            if tensor is not None:
                empty = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
                part._parameters[name] = torch.nn.Parameter(empty, requires_grad=False)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device=device)


class Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes that tensors take on each device while it is entered, and their peak.

    Those of `known` modules are not counted.
    """

    def __init__(self, *known: torch.nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known = {
            tensor.untyped_storage()._cdata for module in known for tensor in (*module.parameters(), *module.buffers())
        }
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self._seen: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor)
        return result

    def _note(self, tensor: torch.Tensor) -> None:
        storage, device = tensor.untyped_storage(), str(tensor.device)
        key = storage._cdata
        if key in self._known or (key in self._seen and self._seen[key]() is not None):
            return
        size = -(-storage.nbytes() // BLOCK) * BLOCK

        def gone(_: Any) -> None:
            self.now[device] -= size
            self._seen.pop(key, None)

        self._seen[key] = weakref.ref(storage, gone)
        self.now[device] += size
        self.peak[device] = max(self.peak[device], self.now[device])
