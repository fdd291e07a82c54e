"""Weights are safetensors or GGUF. A pickle can run any code when it is read, so none is read.

transformers reads safetensors alone when it is told to. But an index of safetensors, or a configuration, may name a
pickle as the file of the weights, and transformers then reads it. So torch.load is also closed while a model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from anchorscope.errors import ModelError

ENDINGS = (".bin", ".pt", ".pth", ".ckpt")
_loading = RLock()


def refuse_pickles(name: str, files: Iterable[str], kind: str = "AutoModelForCausalLM") -> None:
    """Refuse a model that has only pickled weights, or an adapter. `kind`: the class that could convert the weights."""
    listed = [Path(file).name for file in files]
    if "adapter_config.json" in listed:
        raise ModelError(
            f"{name}: it holds an adapter (adapter_config.json), which changes the weights of another model",
            "Merge the adapter into its model with peft's merge_and_unload(), and save the result with "
            "save_pretrained.",
        )
    pickled = [file for file in listed if file.endswith(ENDINGS)]
    if pickled and not any(file.endswith((".safetensors", ".gguf")) for file in listed):
        raise _refused(name, pickled[0], kind)


@contextmanager
def no_pickle(name: str, kind: str = "AutoModelForCausalLM") -> Iterator[None]:
    """Close torch.load to everyone in this process for as long as a model is loaded."""
    import torch

    def refuse(file: Any, *_: Any, **__: Any) -> Any:
        raise _refused(name, Path(file).name if isinstance(file, (str, Path)) else "a stream", kind)

    with _loading:  # else a second load would put the first one's `refuse` back
        opened = torch.load
        torch.load = refuse  # type: ignore[assignment]
        try:
            yield
        finally:
            torch.load = opened


def _refused(name: str, file: str, kind: str) -> ModelError:
    return ModelError(
        f"{name}: the weights are a pickle ({file}), which can run any code when it is read; anchorscope reads "
        "safetensors and GGUF alone",
        f"If you trust whoever made it, convert it once: {kind}.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)",
    )
