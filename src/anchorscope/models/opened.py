"""A model from whatever a person has: a hub id, a folder, a .gguf file, or a transformers object already loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anchorscope.errors import ModelError
from anchorscope.models.heap import bound_kernels, hold_heap
from anchorscope.models.load import EAGER_FAMILIES, Model, Network, Tokenizer, fingerprint, load_model, wants_bos
from anchorscope.models.sites import site_modules, sites_of
from anchorscope.models.source import ModelSource
from anchorscope.models.vocabulary import check_vocabulary
from anchorscope.progress import told
from anchorscope.study import ModelSpec
from anchorscope.study.validation import build

MASKED = ("sdpa", "eager")  # the attention codes that take a 4-D mask
OF_OBJECTS = frozenset({"name", "sites"})  # what can still be said of a model that is loaded


ModelLike = Model | ModelSpec | str | Path | Network
"""What `open_model` takes."""


def open_model(model: ModelLike, tokenizer: Tokenizer = None, **fields: Any) -> Model:
    """A model, ready to be traced and cut.

    `model` is a hub id, a folder or a .gguf file; or a transformers causal LM with its `tokenizer`. `fields` are those
    of a model in a study: name, dtype, device, device_map, attention, sites, revision, gguf. An object keeps its dtype
    and device, and is not changed; of `fields` it takes name and sites.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, (ModelSpec, str, Path)):
        if tokenizer is not None:
            raise ModelError("tokenizer is only for a model object; a model that is loaded by its id brings its own")
        spec = model if isinstance(model, ModelSpec) else build(ModelSpec, id=str(model), **fields)
        return load_model(spec, notice=told)
    return _object(model, tokenizer, fields)


def _object(network: Network, tokenizer: Tokenizer, fields: dict[str, Any]) -> Model:
    """A transformers model object, checked: what would give wrong numbers is refused with the line that mends it."""
    config = getattr(network, "config", None)
    if config is None or not hasattr(network, "get_decoder"):
        raise ModelError(
            f"this is not a model: {type(network).__name__}",
            "Give a hub id, a folder, a .gguf file, or what AutoModelForCausalLM.from_pretrained returns.",
        )
    if tokenizer is None:
        raise ModelError("a model object needs its tokenizer", "Give tokenizer=AutoTokenizer.from_pretrained(…).")
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            "the tokenizer is a slow one, and anchorscope needs a fast one",
            "Give tokenizer=AutoTokenizer.from_pretrained(…).",
        )
    if too_late := sorted(set(fields) - OF_OBJECTS):
        raise ModelError(f"the model is already loaded, so {', '.join(too_late)} cannot be set; leave it out")
    kind, text = str(config.model_type), config.get_text_config()
    called = str(getattr(network, "name_or_path", "") or kind)
    spec = build(ModelSpec, id=called, **fields)
    sites = spec.sites or sites_of(kind)
    _check(network, spec.name)
    check_vocabulary(spec.name, network, tokenizer)
    for site in ("resid", "attn", "mlp"):
        site_modules(network, sites, site)
    bound_kernels()
    hold_heap()
    sizes = (int(text.num_hidden_layers), int(text.hidden_size), int(text.num_attention_heads))
    source = ModelSource("object", called, None, kind, *sizes)
    marks = fingerprint(spec, source, network, tokenizer)
    return Model(spec, source, network, tokenizer, sites, wants_bos(tokenizer, source), marks)


def _check(network: Network, name: str) -> None:
    import torch

    if network.training:
        raise ModelError(f"{name} is in training mode, in which dropout is random", "Call: model.eval()")
    if network.dtype not in (torch.bfloat16, torch.float32, torch.float64):
        kind = str(network.dtype).removeprefix("torch.")
        raise ModelError(
            f"{name} has dtype {kind}, which overflows or rounds too much",
            "Load it with dtype=torch.bfloat16 or float32.",
        )
    attention, eager_only = network.config._attn_implementation, network.config.model_type in EAGER_FAMILIES
    if attention not in MASKED or (eager_only and attention != "eager"):
        better = "eager" if eager_only else "sdpa"
        why = "which leaves out its softcap" if attention in MASKED else "which takes no mask that differs by query"
        raise ModelError(f"{name} attends by {attention}, {why}", f"Call: model.set_attn_implementation('{better}')")
