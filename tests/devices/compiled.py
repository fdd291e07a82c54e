"""C++ that torch compiles once on a machine and keeps."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch


class NoCompilerError(RuntimeError):
    """Nothing can be compiled here."""


def compiled(name: str, source: Path) -> Any:
    """The module that a C++ file makes. The first call on a machine takes up to a minute."""
    missing = [tool for tool in (os.environ.get("CXX", "c++"), "ninja") if shutil.which(tool) is None]
    if missing:
        raise NoCompilerError(f"{source.name} has to be compiled, which needs {' and '.join(missing)}")
    from torch.utils.cpp_extension import load

    version = "".join(c if c.isalnum() else "_" for c in torch.__version__)
    return load(f"anchorscope_{name}_{version}", [str(source)], extra_cflags=["-O1", "-w"])
