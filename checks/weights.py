"""Real weights for the checks: fetched through ../shared/models/fetch, unpacked once into folders."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

FETCH = Path(__file__).resolve().parents[2] / "shared" / "models" / "fetch"
NAMES = {
    "smollm2-135m": "SmolLM2-135M-Instruct",
    "gemma-3-270m": "gemma-3-270m",
    "qwen2.5-coder-0.5b": "Qwen2.5-Coder-0.5B-Instruct",
    "qwen2.5-coder-1.5b": "Qwen2.5-Coder-1.5B-Instruct",
}


def fetch(name: str, folder: Path) -> Path:
    """The GGUF file of a model."""
    done = subprocess.run([str(FETCH), name, str(folder)], check=True, capture_output=True, text=True)
    return Path(done.stdout.strip().splitlines()[-1])


def unpacked(name: str, folder: Path) -> Path:
    """The model as a folder of safetensors in float32, made from its GGUF file on first use."""
    import torch
    from transformers import AutoModelForCausalLM

    from anchorscope import ModelSpec
    from anchorscope.models.load import load_model

    place = folder / NAMES[name]
    if not (place / "done").exists():
        model = load_model(ModelSpec(id=str(fetch(name, folder)), name="m", dtype="float32"))
        config = model.network.config
        config.quantization_config = None
        # a model loaded from GGUF cannot be saved; a fresh one with its weights can
        fresh = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        fresh.load_state_dict(model.network.state_dict())
        fresh.save_pretrained(place)
        model.tokenizer.save_pretrained(place)
        content = json.loads((place / "config.json").read_text())
        content.pop("quantization_config", None)
        (place / "config.json").write_text(json.dumps(content, indent=2))
        (place / "done").write_text("")
    return place
