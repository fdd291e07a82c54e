"""The configuration that the worker and the server share: detectors by name, the socket, and the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anchorscope.detectors.session import Detector
from anchorscope.errors import DetectorError
from anchorscope.serve.audit import AuditLog
from anchorscope.serve.counts import Counts
from anchorscope.serve.intercept import Admission
from anchorscope.words.detector import WordDetector
from anchorscope.words.live import check_live

KEY = "anchorscope"


@dataclass(frozen=True)
class ServeConfig:
    """The part of vLLM's `--additional-config` that is anchorscope's."""

    detectors: Mapping[str, str]
    """Paths of saved detectors, by name. The verdict of the first one goes into the header."""
    adapters: Mapping[str, str] = field(default_factory=dict)
    """LoRA adapters whose answers are judged, by the detector's name. Other detectors judge the model's own."""
    words: str | None = None
    """Path of a saved detector of words, instead of detectors of answers."""
    socket: str = ""
    """Address over which workers send rows."""
    plan: str = ""
    """Fingerprint of the plan, so that vLLM's compile cache never serves a graph without the hooks."""
    audit: str | None = None
    """File to which every verdict is appended as a line of JSON, or None for no log."""
    audit_texts: bool = False
    """Whether the log also has questions and answers."""
    off_allowed: bool = True
    """Whether a client may ask for an answer without a verdict."""
    other_paths: bool = False
    """Whether paths whose answers are not judged are served too."""
    body_bytes: int = Admission.body_bytes
    """The largest body of a request."""

    @classmethod
    def of(cls, additional: Any) -> ServeConfig:
        settings = additional.get(KEY) if isinstance(additional, dict) else None
        if not isinstance(settings, dict) or not (settings.get("detectors") or settings.get("words")):
            raise DetectorError(
                "vLLM was started without anchorscope's configuration",
                "Start it with: anchorscope serve MODEL --detector DETECTOR  (or with the flags that this prints).",
            )
        return cls(**settings)

    def record(self) -> dict[str, Any]:
        return {KEY: asdict(self)}

    @property
    def admission(self) -> Admission:
        """Which requests are let in."""
        return Admission(self.off_allowed, self.other_paths, self.body_bytes)

    def counts(self) -> Counts:
        """Counts that start at 0, and the audit log."""
        return Counts(AuditLog(Path(self.audit)) if self.audit else None, self.audit_texts)

    def load(self) -> dict[str, Detector]:
        return {name: Detector.load(path) for name, path in self.detectors.items()}

    def word_detector(self) -> WordDetector:
        """The detector of words. One that cannot judge log-probabilities is refused."""
        assert self.words is not None
        detector = WordDetector.load(self.words)
        check_live(detector)
        return detector
