"""The real models of the checks, as folders of safetensors.

A folder of models (`--models DIR`) holds each model either as a folder in the form of transformers (DIR/NAME) or as the
GGUF file that checks/README.md names. anchorscope unpacks a GGUF file into its cache on first use, in float32.
"""

from __future__ import annotations

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
    """The folder of a model."""
    place, packed = folder / NAMES[name], folder / FILES[name]
    if (place / "config.json").exists():
        return place
    if not packed.exists():
        raise SystemExit(f"The model {name} is missing: there is neither {place} nor {packed}. See checks/README.md.")
    from anchorscope import ModelSpec
    from anchorscope.models.load import load_model
    from anchorscope.models.unpacked import unpacked as kept
    from anchorscope.store.checksums import sha256_of

    load_model(ModelSpec(id=str(packed), name=name, dtype="float32"))  # which unpacks the file, and keeps the folder
    found = kept(sha256_of(packed), "float32")
    if found is None:
        raise SystemExit("Unpacked weights are not kept. Unset ANCHORSCOPE_CACHE=off.")
    return found.folder
