"""The real models of the checks and of benchmarks/, as folders of safetensors in float32.

A folder of models (`--models DIR`) holds each model either as a folder in the form of transformers (DIR/NAME) or as the
GGUF file that checks/README.md names. A GGUF file is unpacked into DIR/NAME on first use.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

NAMES = {
    "smollm2-135m": "SmolLM2-135M-Instruct",
    "gemma-3-270m": "gemma-3-270m",
    "qwen2.5-coder-0.5b": "Qwen2.5-Coder-0.5B-Instruct",
    "qwen2.5-coder-1.5b": "Qwen2.5-Coder-1.5B-Instruct",
}
FILES = {
    "smollm2-135m": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma-3-270m": "gemma-3-270m-q4_k_m.gguf",
    "qwen2.5-coder-0.5b": "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    "qwen2.5-coder-1.5b": "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
}
SMALL = ("smollm2-135m", "gemma-3-270m")
TITLES = {"smollm2-135m": "SmolLM2-135M", "gemma-3-270m": "Gemma-3-270m"}
"""Names of the small models as charts and tables write them."""


def unpacked(name: str, folder: Path) -> Path:
    """The folder of a model, made from its GGUF file on first use."""
    place, packed = folder / NAMES[name], folder / FILES[name]
    if (place / "config.json").exists():
        return place
    if not packed.exists():
        raise SystemExit(f"The model {name} is missing: there is neither {place} nor {packed}. See checks/README.md.")
    import torch
    from transformers import AutoModelForCausalLM

    from anchorscope import ModelSpec
    from anchorscope.models.load import load_model

    model = load_model(ModelSpec(id=str(packed), name="m", dtype="float32"))
    config = model.network.config
    config.quantization_config = None
    # transformers cannot save a model that was loaded from GGUF, but it can save a fresh one with the same weights
    fresh = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fresh.load_state_dict(model.network.state_dict())
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        made = Path(temporary) / "model"
        fresh.save_pretrained(made)
        model.tokenizer.save_pretrained(made)
        content = json.loads((made / "config.json").read_text())
        content.pop("quantization_config", None)
        (made / "config.json").write_text(json.dumps(content, indent=2))
        made.rename(place)  # at the end, so that a stop leaves no half of a model
    return place
