"""A real model, loaded, with its prompter."""

from __future__ import annotations

from pathlib import Path

from anchorscope import ModelSpec, PromptSpec
from anchorscope.models.load import Model, load_model
from anchorscope.models.prompts import Prompter


def loaded(place: Path, dtype: str = "bfloat16", weights: bool = True) -> tuple[Model, Prompter]:
    """The model in a folder, and what makes its prompts."""
    spec = ModelSpec.model_validate({"id": str(place), "name": "m", "dtype": dtype})
    model = load_model(spec, weights=weights)
    return model, Prompter(model.tokenizer, PromptSpec(), model.wants_bos)
