"""A pretend accelerator: two devices, `pretend:0` and `pretend:1`, that are not there.

They compute with the CPU's memory and arithmetic, and are as strict as GPUs: tensors of two devices in one operation
are refused, and so is `.numpy()` of a device's tensor. They cannot show speed, memory, or how a kernel rounds.
"""

from __future__ import annotations

import types
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.utils import backend_registration as backend

from devices.compiled import compiled

NAME = "pretend"
SOURCE = Path(__file__).with_name("device.cpp")


@lru_cache(maxsize=1)
def install() -> None:
    """Make the devices known to torch, for as long as this process lives, and before its first backward pass.

    Torch starts a thread for every device at the first backward pass, and none for a device it meets later.
    """
    code = compiled(NAME, SOURCE)
    backend.rename_privateuse1_backend(NAME)
    register: Any = torch._register_device_module
    register(NAME, _module(code))
    backend.generate_methods_for_privateuse1_backend()
    code.install()
    try:
        last = torch.ones(1, device=f"{NAME}:{code.DEVICES - 1}", requires_grad=True)
        torch.autograd.grad(last.sum(), last)
    except RuntimeError as error:
        raise RuntimeError(f"install {NAME} before the first backward pass of this process") from error


def _module(code: Any) -> Any:
    """What torch expects in `torch.pretend`."""
    module: Any = types.ModuleType(f"torch.{NAME}")
    module.is_available = module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.device_count = lambda: code.DEVICES
    module.current_device = code.current
    module.set_device = lambda device: code.choose(device if isinstance(device, int) else torch.device(device).index)
    module.manual_seed_all = module.set_rng_state = module.synchronize = module.empty_cache = lambda *_: None
    module.get_rng_state = lambda *_: torch.empty(0, dtype=torch.uint8)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    return module
