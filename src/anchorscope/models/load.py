"""Load a model and its tokenizer, and say exactly which ones they are.

From the hub, from a local folder, or from a GGUF file; on one device or sharded over several. Code that comes with a
model is never run.
"""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorscope.errors import AnchorscopeError, ModelError, hub_errors, reason_of
from anchorscope.models.heap import bound_kernels, hold_heap
from anchorscope.models.identity import shape_hash, tokenizer_hash
from anchorscope.models.pickles import no_pickle
from anchorscope.models.sites import sites_of
from anchorscope.models.source import Located, ModelSource, find_model, locate_model
from anchorscope.models.unpacked import Unpacked, drop_unpacked, keep_unpacked, same_weights, unpacked
from anchorscope.models.vocabulary import check_vocabulary
from anchorscope.progress import Notice, nobody, without_bars
from anchorscope.reach import hub_in_reach
from anchorscope.store.checksums import sha256_of
from anchorscope.study import ModelSpec, Sites

if TYPE_CHECKING:
    import torch


Network = Any  # transformers.PreTrainedModel; its own types are too loose to check against
Tokenizer = Any  # transformers.PreTrainedTokenizerBase

# Families whose attention sdpa cannot compute: it has no softcap.
EAGER_FAMILIES = frozenset({"gemma2"})
# Families that were trained with a BOS in front of every text, whatever their tokenizer file says.
BOS_FAMILIES = frozenset({"gemma", "gemma2", "gemma3", "gemma3_text"})
# A folder without a model. transformers reads tokenizer and configuration from what lies beside a GGUF file.
NOTHING_BESIDE = Path(__file__).parent


@dataclass(frozen=True, repr=False)
class Model:
    """A loaded model, ready for forward passes."""

    spec: ModelSpec
    """The settings with which it was loaded."""
    source: ModelSource
    """The files or the hub's commit that it was loaded from."""
    network: Network
    """The weights, as transformers' causal LM."""
    tokenizer: Tokenizer
    """transformers' tokenizer."""
    sites: Sites
    """Where its attention, MLPs and layers are."""
    wants_bos: bool
    """Whether a text starts with one BOS token."""
    fingerprint: dict[str, Any]
    """What identifies weights, configuration and tokenizer, for the manifest of a run."""

    def __repr__(self) -> str:
        dtype = str(self.network.dtype).removeprefix("torch.")
        return f"Model('{self.name}': {self.source}, {dtype} on {self.device}, {self.attention} attention)"

    @cached_property
    def marks(self) -> dict[str, str]:
        """What identifies its tokenizer and its shape in every version of the libraries, for detectors."""
        return {"shape": shape_hash(self.network), "tokens": tokenizer_hash(self.tokenizer)}

    @property
    def name(self) -> str:
        """What figures and folders call it."""
        return self.spec.name

    @property
    def device(self) -> torch.device:
        """Where input ids go; with device_map, where the embeddings are computed. meta for a model without weights."""
        import torch

        embeddings = self.network.get_input_embeddings()
        hook = getattr(embeddings, "_hf_hook", None)  # accelerate's: offloaded weights are on meta until they are used
        for part in getattr(hook, "hooks", [hook]):
            place = getattr(part, "execution_device", None)
            if place is not None:
                return torch.device(place)
        return embeddings.weight.device

    @property
    def attention(self) -> str:
        """The attention code it computes with: sdpa or eager."""
        return str(self.network.config._attn_implementation)

    @property
    def windows(self) -> list[int | None]:
        """Each layer's sliding window in tokens; None where a layer sees everything before it."""
        config = self.network.config.get_text_config()
        size = getattr(config, "sliding_window", None)
        types = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
        return [size if kind == "sliding_attention" else None for kind in types]

    @property
    def window(self) -> int | None:
        """The length of the sliding window, if some layer has one."""
        return next((size for size in self.windows if size is not None), None)


def load_model(spec: ModelSpec, base: Path = Path(), weights: bool = True, notice: Notice = nobody) -> Model:
    """Load the model a study names; relative paths start at `base`.

    Without weights it is the same model on no device: for vLLM, which loads them itself and needs the memory.
    """
    bound_kernels()
    hold_heap()
    located = locate_model(spec, base)
    packed = located.folder / located.gguf if located.gguf and located.kind != "hub" else None
    dtype = str(dtype_of(spec)).removeprefix("torch.") if packed else ""
    resolved = spec.model_copy(update={"dtype": dtype}) if packed else spec  # `auto` is tried once
    unpacked_copy = unpacked(sha256_of(packed), dtype, notice) if packed else None
    if packed and unpacked_copy is not None:
        model = _load_unpacked(resolved, located, unpacked_copy, weights)
        if model is not None:
            return replace(model, spec=spec)
        drop_unpacked(sha256_of(packed), dtype, notice)
    source = find_model(spec, base)
    sites = spec.sites or sites_of(source.architecture)  # before the weights, which may take minutes
    with without_bars():
        tokenizer = load_tokenizer(spec, source)
        network = _load_network(resolved, source) if weights else _empty_network(resolved, source)
    network.eval()
    check_vocabulary(spec.name, network, tokenizer)
    marks = fingerprint(spec, source, network, tokenizer)
    model = Model(spec, source, network, tokenizer, sites, wants_bos(tokenizer, source), marks)
    if packed and weights and spec.device_map is None:
        _keep(replace(model, spec=resolved), packed, dtype, notice)
    return model


def _load_unpacked(spec: ModelSpec, located: Located, unpacked_copy: Unpacked, weights: bool) -> Model | None:
    """A model whose GGUF weights were unpacked before, from its folder; None where it has another tokenizer by now."""
    marks, expected = unpacked_copy.marks, unpacked_copy.marks["fingerprint"]
    source = ModelSource(located.kind, located.location, None, *marks["source"])
    folder = replace(source, kind="folder", location=str(unpacked_copy.folder))
    with without_bars():
        tokenizer = load_tokenizer(spec, folder)
        network = _load_network(spec, folder) if weights else _empty_network(spec, folder)
    network.eval()
    check_vocabulary(spec.name, network, tokenizer)
    loaded = fingerprint(spec, source, network, tokenizer)
    if any(loaded[name] != expected[name] for name in ("tokenizer", "ends")):
        return None
    loaded["config"] = expected["config"]  # a saved folder says the same configuration in other words
    return Model(spec, source, network, tokenizer, spec.sites or sites_of(source.architecture), marks["bos"], loaded)


def _keep(model: Model, packed: Path, dtype: str, notice: Notice) -> None:
    """Keep unpacked weights, if the folder gives the same model."""
    expected = {name: model.fingerprint[name] for name in ("config", "tokenizer", "ends")}
    sizes = [getattr(model.source, name) for name in ("architecture", "layers", "width", "heads")]
    marks = {"fingerprint": expected, "source": sizes, "bos": model.wants_bos}

    def same(folder: Path) -> bool:
        source = replace(model.source, kind="folder", location=str(folder))
        with without_bars():
            tokenizer, network = load_tokenizer(model.spec, source), _load_network(model.spec, source)
        loaded = fingerprint(model.spec, source, network, tokenizer)
        alike = all(loaded[name] == expected[name] for name in ("tokenizer", "ends"))
        return alike and loaded["dtype"] == dtype and same_weights(model.network, network)

    with without_bars():
        keep_unpacked(sha256_of(packed), dtype, model.network, model.tokenizer, marks, same, notice)


def load_tokenizer(spec: ModelSpec, source: ModelSource) -> Tokenizer:
    """Load the tokenizer alone."""
    from transformers import AutoTokenizer

    folder, options = _where(spec, source)
    try:
        with hub_errors(spec.id, "model"):
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, **options)
    except AnchorscopeError:
        raise
    except Exception as error:  # noqa: BLE001 a broken tokenizer fails in many ways
        reason = reason_of(error)
        raise ModelError(f"{spec.name}: cannot load its tokenizer ({reason})") from None


def load_config(spec: ModelSpec, source: ModelSource) -> Any:
    """Load the configuration alone."""
    from transformers import AutoConfig

    folder, options = _where(spec, source)
    with hub_errors(spec.id, "model"):
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, **options)


def wants_bos(tokenizer: Tokenizer, source: ModelSource) -> bool:
    """Whether texts start with BOS: the tokenizer adds it, the GGUF file says so, or the family was trained so."""
    bos = tokenizer.bos_token_id
    if bos is None:
        return False
    if tokenizer("x").input_ids[:1] == [bos] or source.architecture in BOS_FAMILIES:
        return True
    if source.kind == "gguf":
        from gguf import GGUFReader

        field = GGUFReader(source.location).fields.get("tokenizer.ggml.add_bos_token")
        return field is not None and bool(field.parts[-1][0])
    return False


def _where(spec: ModelSpec, source: ModelSource) -> tuple[str, dict[str, Any]]:
    """The first argument and the options of transformers' from_pretrained."""
    if source.kind == "gguf":
        return str(NOTHING_BESIDE), {"gguf_file": str(Path(source.location).absolute())}
    if source.kind != "hub":
        return source.location, {}
    # local_files_only: else every file is asked for, with retries
    options: dict[str, Any] = {"revision": source.commit or spec.revision, "local_files_only": not hub_in_reach()}
    if spec.gguf is None:
        return source.location, options
    from huggingface_hub import hf_hub_download

    with hub_errors(spec.id, "model"):
        return str(NOTHING_BESIDE), {"gguf_file": hf_hub_download(spec.id, spec.gguf, **options)}


def _load_network(spec: ModelSpec, source: ModelSource) -> Network:
    import torch
    from transformers import AutoModelForCausalLM

    folder, options = _where(spec, source)
    if "gguf_file" in options:
        options |= _unpacked()
    device = usable_device(spec)
    try:
        with hub_errors(spec.id, "model"), no_pickle(spec.name):
            network: Network = AutoModelForCausalLM.from_pretrained(
                folder,
                **options,
                dtype=dtype_of(spec),
                device_map=spec.device_map or {"": device},
                attn_implementation=_attention(spec, source),
                trust_remote_code=False,
                **({} if "gguf_file" in options else {"use_safetensors": True}),
            )
    except torch.cuda.OutOfMemoryError:
        raise ModelError(
            f"{spec.name} does not fit on {device}", "Set device_map: auto to shard it, or dtype: bfloat16."
        ) from None
    except AnchorscopeError:
        raise
    except Exception as error:  # noqa: BLE001 broken weights fail in many ways
        reason = reason_of(error)
        raise ModelError(f"{spec.name}: cannot load the model ({reason})") from None
    text = network.config.get_text_config()
    if network.dtype == torch.float64 and any(hasattr(text, name) for name in ("num_experts", "num_local_experts")):
        network.set_experts_implementation("eager")  # the fast code of experts has no float64
    return network


def _empty_network(spec: ModelSpec, source: ModelSource) -> Network:
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    folder, options = _where(spec, source)
    config = load_config(spec, source)
    with hub_errors(spec.id, "model"):
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(
                config, dtype=dtype_of(spec), attn_implementation=_attention(spec, source), trust_remote_code=False
            )
        if "gguf_file" not in options:
            try:
                network.generation_config = GenerationConfig.from_pretrained(folder, **options)
            except OSError:  # not every model has such a file; transformers takes its configuration then
                network.generation_config = GenerationConfig.from_pretrained(
                    folder, config_file_name="config.json", _from_model_config=True, **options
                )
    return network


def device_of(spec: ModelSpec) -> str:
    """Where a model goes that is not sharded."""
    import torch

    if spec.device != "auto":
        return spec.device
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def usable_device(spec: ModelSpec) -> str:
    """Where a model goes that is not sharded; an error where torch has no such device here."""
    import torch

    device = device_of(spec)
    if spec.device_map is None:
        try:
            torch.zeros(1, device=device)
        except Exception as error:  # noqa: BLE001 each backend fails in its own way
            raise ModelError(
                f"{spec.name}: the device {device} cannot be used here ({reason_of(error)})",
                "Set device: cpu, or device: auto, which uses a GPU if there is one.",
            ) from None
    return device


def dtype_of(spec: ModelSpec) -> torch.dtype:
    """The number type asked for, or what is fast on the device it goes to."""
    import torch

    from anchorscope.models.speed import fastest_dtype

    name = spec.dtype if spec.dtype != "auto" else fastest_dtype(torch.device(device_of(spec)))
    return getattr(torch, name)


def _attention(spec: ModelSpec, source: ModelSource) -> str:
    """The attention code asked for, or the best one that the family has."""
    eager_only = source.architecture in EAGER_FAMILIES
    if eager_only and spec.attention == "sdpa":
        raise ModelError(
            f"{spec.name}: attention: sdpa leaves out the logit softcap of {source.architecture}",
            "Set attention: eager.",
        )
    return spec.attention if spec.attention != "auto" else "eager" if eager_only else "sdpa"


def _unpacked() -> dict[str, Any]:
    """GGUF weights as plain tensors: packed ones compute in float32, whatever dtype was asked for."""
    try:
        from transformers import GgufConfig
    except ImportError:  # older versions always unpack
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}


def fingerprint(spec: ModelSpec, source: ModelSource, network: Network, tokenizer: Tokenizer) -> dict[str, Any]:
    """Commit or file hashes, configuration and tokenizer."""
    config = {k: v for k, v in network.config.to_dict().items() if k not in ("_name_or_path", "transformers_version")}
    words = [tokenizer.backend_tokenizer.to_str(), tokenizer.chat_template, tokenizer.special_tokens_map]
    local = source.kind in ("folder", "gguf")
    return {
        "kind": source.kind,
        "id": Path(source.location).name if local else source.location,
        "commit": source.commit,
        "files": file_hashes(Path(source.location)) if local else None,
        "config": _hash(json.dumps(config, sort_keys=True, default=str).encode()),
        "tokenizer": _hash(json.dumps(words, sort_keys=True, default=str).encode()),
        "dtype": str(network.dtype).removeprefix("torch."),
        "attention": network.config._attn_implementation,
        "sites": spec.sites.model_dump() if spec.sites else None,
        "ends": sorted(end_tokens(network, tokenizer)),
    }


def file_hashes(place: Path) -> dict[str, str]:
    """The hash of each weight file, read whole: an edited layer changes a few bytes in the middle."""
    weights = [place] if place.is_file() else sorted([*place.glob("*.safetensors"), *place.glob("*.gguf")])
    with ThreadPoolExecutor() as pool:  # a large model has many files, and a hash keeps one core busy
        return dict(zip((path.name for path in weights), pool.map(sha256_of, weights), strict=True))


def end_tokens(network: Network, tokenizer: Tokenizer) -> set[int]:
    """The tokens that end a text, as the model's generation settings and its tokenizer have them."""
    ends: set[int] = set()
    for ids in (network.generation_config.eos_token_id, tokenizer.eos_token_id):
        ends.update(ids if isinstance(ids, list) else [ids] if ids is not None else [])
    return ends


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
