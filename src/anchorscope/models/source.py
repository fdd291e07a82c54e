"""Find a model without loading its weights: is it there, may it be read, which commit is it, how large is it?

Asked before a run starts, so that a gated model or a mistyped id is known in the first second, not after the
questions have been prepared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from anchorscope.errors import ModelError, printable
from anchorscope.hub import hub_errors, is_network
from anchorscope.study import ModelSpec


@dataclass(frozen=True)
class ModelSource:
    """A model that was found."""

    kind: Literal["hub", "folder", "gguf"]
    location: str
    """Hub id, folder or file."""
    commit: str | None
    """Commit on the hub, or None for local ones."""
    architecture: str
    """transformers' model type, such as llama."""
    layers: int
    width: int
    """Size of the residual stream."""
    heads: int

    def __str__(self) -> str:
        at = f" at {self.commit[:12]}" if self.commit else ""
        return f"{self.architecture}, {self.layers} layers × {self.width} wide, {self.heads} heads ({self.kind}{at})"


def find_model(spec: ModelSpec, base: Path) -> ModelSource:
    """Find the model a study names; relative paths start at `base`."""
    local = base / Path(spec.id).expanduser()
    if spec.id.endswith(".gguf"):
        if not local.is_file():
            raise ModelError(f"{spec.name}: there is no file {local}")
        return _source(spec, "gguf", str(local), None, local.parent, gguf=local.name)
    if local.is_dir():
        if spec.gguf is None and not (local / "config.json").is_file():
            raise ModelError(f"{spec.name}: the folder {local} holds no config.json", "It should hold a saved model.")
        return _source(spec, "folder", str(local), None, local, gguf=spec.gguf)
    if spec.id.startswith(("/", "./", "../", "~")):
        raise ModelError(f"{spec.name}: there is no folder {local}")
    file = _download(spec, spec.gguf or "config.json")
    # the cache keeps each commit in snapshots/<commit>/
    return _source(spec, "hub", spec.id, file.parent.name, file.parent, gguf=spec.gguf)


def _download(spec: ModelSpec, name: str) -> Path:
    """One file of a model on the hub, at the commit its revision stands for now; from the cache when offline."""
    from huggingface_hub import HfApi, hf_hub_download

    with hub_errors(spec.id, "model"):
        try:
            HfApi().model_info(spec.id, revision=spec.revision, timeout=20)  # fails at once where a download retries
        except Exception as error:
            if not is_network(error):
                raise
            return Path(hf_hub_download(spec.id, name, revision=spec.revision, local_files_only=True))
        return Path(hf_hub_download(spec.id, name, revision=spec.revision))


def _source(
    spec: ModelSpec,
    kind: Literal["hub", "folder", "gguf"],
    location: str,
    commit: str | None,
    folder: Path,
    gguf: str | None,
) -> ModelSource:
    config = _config(spec, folder, gguf).get_text_config()
    return ModelSource(
        kind,
        location,
        commit,
        config.model_type,
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
    )


def _config(spec: ModelSpec, folder: Path, gguf: str | None) -> Any:
    """The model's configuration. Code that comes with a model is never run."""
    from transformers import AutoConfig

    where = folder / (gguf or "config.json")
    if gguf is None:
        _refuse_remote_code(spec, where)
    try:
        return AutoConfig.from_pretrained(folder, gguf_file=gguf, local_files_only=True, trust_remote_code=False)
    except ImportError:
        raise ModelError(
            f"{spec.name}: reading a .gguf file needs the gguf library",
            "Run: pip install 'anchorscope[gguf]'",
        ) from None
    except Exception as error:  # noqa: BLE001 a broken configuration can fail anywhere in transformers
        reason = printable(" ".join(str(error).split()), 200)
        raise ModelError(f"{spec.name}: {where} is not a model transformers can read ({reason})") from None


def _refuse_remote_code(spec: ModelSpec, config: Path) -> None:
    from transformers import CONFIG_MAPPING

    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{spec.name}: {config} cannot be read ({error})") from None
    kind = content.get("model_type") if isinstance(content, dict) else None
    if kind not in CONFIG_MAPPING:
        remote = isinstance(content, dict) and "auto_map" in content
        why = (
            "it brings code of its own, which anchorscope does not run"
            if remote
            else "its model_type is not known to transformers"
        )
        raise ModelError(f"{spec.name}: {spec.id} cannot be used: {why} (model_type: {kind})")
