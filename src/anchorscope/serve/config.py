"""What the worker and the server are told alike: detectors by name, the socket, and where verdicts are logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anchorscope.detectors.session import Detector
from anchorscope.errors import DetectorError

KEY = "anchorscope"


@dataclass(frozen=True)
class ServeConfig:
    """The part of vLLM's `--additional-config` that is anchorscope's."""

    detectors: Mapping[str, str]
    """By name, the path of a saved detector. The first one's verdict decides the header."""
    socket: str = ""
    """The address over which workers send rows."""
    plan: str = ""
    """The plan's fingerprint: vLLM's compile cache then never serves a graph without the hooks."""
    audit: str | None = None
    """A file to which every verdict is added as a line of JSON; None: no log."""
    audit_texts: bool = False
    """Whether the log has questions and answers too."""

    @classmethod
    def of(cls, additional: Any) -> ServeConfig:
        """From vLLM's configuration."""
        own = additional.get(KEY) if isinstance(additional, dict) else None
        if not isinstance(own, dict) or not own.get("detectors"):
            raise DetectorError(
                "vLLM was started without anchorscope's configuration",
                "Start it by anchorscope serve MODEL --detector DETECTOR, or with the flags that it prints.",
            )
        return cls(**own)

    def record(self) -> dict[str, Any]:
        """As `--additional-config` has it."""
        return {KEY: asdict(self)}

    def load(self) -> dict[str, Detector]:
        """The detectors, by name."""
        return {name: Detector.load(path) for name, path in self.detectors.items()}

    @staticmethod
    def named(paths: list[Path]) -> dict[str, str]:
        """Names of detectors: those of their files."""
        found: dict[str, str] = {}
        for path in paths:
            stem = str(path).removesuffix(".json").removesuffix(".safetensors")
            name = Path(stem).name
            if name in found:
                raise DetectorError(f"two detectors are called {name}", "Rename one of the files.")
            found[name] = str(Path(stem).resolve())
        return found
