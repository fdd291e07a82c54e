"""Find a model without loading its weights: is it there, may it be read, which commit is it, how large is it?

Asked before a run starts, so that a gated model or a mistyped id is known in the first second, not after the
questions have been prepared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anchorscope.errors import ModelError, hub_errors, is_network, reason_of, shown
from anchorscope.models.pickles import refuse_pickles
from anchorscope.reach import hub_in_reach
from anchorscope.study import ModelSpec

LOCAL = "Check the path. A model is a folder, a .gguf file, or an id on the Hugging Face hub."


@dataclass(frozen=True)
class ModelSource:
    kind: Literal["hub", "folder", "gguf", "object"]
    """Where it is: on the hub, in a folder, in a file; or an object that was handed over."""
    location: str
    """Hub id, folder or file; of an object the name it goes by."""
    commit: str | None
    """Commit on the hub; None for local ones."""
    architecture: str
    """transformers' model type, such as llama."""
    layers: int
    width: int
    heads: int
    """Number of query heads in each layer."""

    def __str__(self) -> str:
        at = f" at {self.commit[:12]}" if self.commit else ""
        return f"{self.architecture}, {self.layers} layers × {self.width} wide, {self.heads} heads ({self.kind}{at})"


@dataclass(frozen=True)
class Located:
    """Where a model is, before anything of it is understood."""

    kind: Literal["hub", "folder", "gguf"]
    """On the hub, in a folder, in a file."""
    location: str
    """Hub id, folder or file."""
    commit: str | None
    """Commit on the hub; None for local ones."""
    folder: Path
    """The folder with its configuration; of a model on the hub, in the local cache."""
    gguf: str | None
    """The .gguf file in it that is meant."""


def find_model(spec: ModelSpec, base: Path) -> ModelSource:
    """Find the model a study names; relative paths start at `base`."""
    return _source(spec, locate_model(spec, base))


def is_path(name: str) -> bool:
    """Whether a model's id can only be a local file or folder."""
    return name.endswith(".gguf") or name.startswith(("/", "./", "../", "~"))


def locate_model(spec: ModelSpec, base: Path) -> Located:
    """Where the model is. Asks the hub, but loads neither torch nor transformers: a mistake is known in a second."""
    local = base / Path(spec.id).expanduser()
    if spec.gguf is not None and local.is_dir():
        local = local / spec.gguf
    if local.name.endswith(".gguf") and not local.is_dir():
        if not local.is_file():
            raise ModelError(f"{spec.name}: there is no file {local}", LOCAL)
        return Located("gguf", str(local), None, local.parent, local.name)
    if local.is_dir():
        if not (local / "config.json").is_file():
            raise _no_model_in(local, spec)
        refuse_pickles(spec.name, (path.name for path in local.iterdir()))
        return Located("folder", str(local), None, local, None)
    if is_path(spec.id):
        raise ModelError(f"{spec.name}: there is no folder {local}", LOCAL)
    file, commit = _download(spec)
    return Located("hub", spec.id, commit, file.parent, None)


def _no_model_in(folder: Path, spec: ModelSpec) -> ModelError:
    """A folder without config.json: often one that holds a .gguf file."""
    packed = sorted(folder.glob("*.gguf"))
    if len(packed) == 1:
        return ModelError(f"{spec.name}: the folder {folder} holds one .gguf file", f"Give that file: {packed[0]}")
    if packed:
        listed = ", ".join(path.name for path in packed)
        return ModelError(f"{spec.name}: the folder {folder} holds several .gguf files", f"Give one of: {listed}")
    return ModelError(f"{spec.name}: the folder {folder} holds no config.json", "It should hold a saved model.")


def _download(spec: ModelSpec) -> tuple[Path, str | None]:
    """The configuration of a model on the hub and its commit; from the cache when the hub is out of reach."""
    from huggingface_hub import HfApi, hf_hub_download

    with hub_errors(spec.id, "model"):
        try:
            # fails at once where a download would retry
            info = HfApi().model_info(spec.id, revision=spec.revision, timeout=20) if hub_in_reach() else None
        except Exception as error:
            if not is_network(error):
                raise
            info = None
        if info is None:
            cached = Path(hf_hub_download(spec.id, "config.json", revision=spec.revision, local_files_only=True))
            refuse_pickles(spec.name, (path.name for path in cached.parent.iterdir()))
            return cached, cached.parent.name  # the cache keeps each commit in snapshots/<commit>/
        files = [file.rfilename for file in info.siblings or []]
        if spec.gguf and spec.gguf not in files:
            raise ModelError(f"{spec.name}: the model {spec.id} has no file {spec.gguf}")
        refuse_pickles(spec.name, (file for file in files if "/" not in file))
        return Path(hf_hub_download(spec.id, "config.json", revision=spec.revision)), info.sha


def _source(spec: ModelSpec, located: Located) -> ModelSource:
    """Read the configuration. Code that comes with a model is never run."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

    folder, gguf = located.folder, located.gguf
    where = folder / (gguf or "config.json")
    try:
        if gguf is None:
            content = json.loads(where.read_text(encoding="utf-8"))
            if content["model_type"] not in CONFIG_MAPPING:
                own = "auto_map" in content
                why = (
                    "it brings code of its own, which anchorscope does not run"
                    if own
                    else "transformers does not know it"
                )
                raise ModelError(f"{spec.name}: the model type {shown(content['model_type'])} cannot be used: {why}")
        config = AutoConfig.from_pretrained(folder, gguf_file=gguf, local_files_only=True, trust_remote_code=False)
        if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise ModelError(f"{spec.name}: {shown(config.model_type)} is not a causal language model")
        text = config.get_text_config()
        sizes = (int(text.num_hidden_layers), int(text.hidden_size), int(text.num_attention_heads))
        return ModelSource(located.kind, located.location, located.commit, str(config.model_type), *sizes)
    except ModelError:
        raise
    except ImportError:
        raise ModelError(
            f"{spec.name}: reading a .gguf file needs the gguf library", "Run: pip install 'anchorscope[gguf]'"
        ) from None
    except Exception as error:  # noqa: BLE001 a broken configuration can fail anywhere in transformers
        reason = reason_of(error)
        raise ModelError(f"{spec.name}: {where} is not a model transformers can read ({reason})") from None
