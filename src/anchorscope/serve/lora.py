"""LoRA adapters whose answers detectors judge: how users name them, and whether their files are still the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchorscope.errors import DetectorError

RUNTIME = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"


def named(given: Sequence[Path]) -> tuple[dict[str, str], dict[str, str]]:
    """Paths of detectors by the names of their files, and the adapters of those that were given as PATH@ADAPTER."""
    found: dict[str, str] = {}
    adapters: dict[str, str] = {}
    for each in given:
        path, adapter = _split(each)
        if path.name in found:
            raise DetectorError(f"two detectors are called {path.name}", "Rename one of the files.")
        found[path.name] = str(path.resolve())
        if adapter:
            adapters[path.name] = adapter
    return found, adapters


def _split(given: Path) -> tuple[Path, str]:
    """A detector's path without its ending, and the adapter after an @. A detector whose name has an @ comes first."""
    text = str(given.expanduser())
    for path, at, adapter in ((text, "", ""), text.rpartition("@")):
        stem = path.removesuffix(".json").removesuffix(".safetensors")
        if stem and Path(f"{stem}.json").is_file() and bool(at) == bool(adapter):
            return Path(stem), adapter
    raise DetectorError(f"there is no detector at {given}", "Check the path, or make one: anchorscope detect fit")


def check_settled(requests: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Refuse a server to which adapters can be added later, because they could not be compared at its start."""
    if environment.get(RUNTIME, "0").strip().lower() in ("1", "true"):
        have = ", ".join(sorted(requests)) or "none yet"
        raise DetectorError(
            f"adapters may be loaded and replaced while the server runs (now {have})",
            f"Unset {RUNTIME}, and name all adapters with --lora-modules.",
        )


@dataclass(frozen=True)
class Adapter:
    """One adapter, as the server loaded it."""

    request: Any = field(repr=False)
    """vLLM's own LoRARequest."""
    folder: Path
    digest: str
    """A hash of its name and of its files."""
    written: tuple[int, ...]
    """When its files were written."""

    @classmethod
    def of(cls, requests: Mapping[str, Any], name: str) -> Adapter:
        """The adapter of this name, out of the server's."""
        if name not in requests:
            have = ", ".join(sorted(requests)) or "no adapter"
            raise DetectorError(
                f"a detector judges the adapter {name}, and the server has {have}",
                f"Start it with --enable-lora --lora-modules {name}=FOLDER.",
            )
        folder = Path(requests[name].lora_path).expanduser()
        if not folder.is_dir():
            raise DetectorError(f"the adapter {name} is not in a folder: {folder}", "Download it, and name its folder.")
        digest = hashlib.sha256(name.encode())
        for file in _files(folder):
            digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
        return cls(requests[name], folder, digest.hexdigest()[:12], _written(folder))

    @property
    def name(self) -> str:
        """The name under which it is served."""
        return str(self.request.lora_name)

    @property
    def changed(self) -> bool:
        """Whether its files are others than at the start: vLLM reads them again after it dropped an adapter."""
        try:
            return _written(self.folder) != self.written
        except OSError:
            return True


def _files(folder: Path) -> list[Path]:
    """The files from which vLLM loads an adapter."""
    return sorted(path for path in folder.glob("adapter_*") if path.is_file())


def _written(folder: Path) -> tuple[int, ...]:
    return tuple(path.stat().st_mtime_ns for path in _files(folder))
