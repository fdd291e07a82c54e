"""A small text-embedding model, for baselines that see words alone: the mean of its last states, unit length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from anchorscope.errors import ModelError
from anchorscope.models.pickles import no_pickle, refuse_pickles

BATCH, LONGEST = 64, 256


class Embedder:
    """Texts to vectors."""

    def __init__(self, folder: str | Path) -> None:
        if not Path(folder).is_dir():
            raise ModelError(
                f"{folder} is not a folder with a text-embedding model", "Give such a folder, or leave --embedder out."
            )
        refuse_pickles(str(folder), (path.name for path in Path(folder).iterdir()), "AutoModel")
        local = {"local_files_only": True, "trust_remote_code": False}
        self.tokenizer = AutoTokenizer.from_pretrained(folder, **local)
        with no_pickle(str(folder), "AutoModel"):
            self.network = AutoModel.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, **local).eval()

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(text, width)"""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        out: dict[int, torch.Tensor] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            given = self.tokenizer(
                [texts[i] for i in batch], padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
            )
            states = self.network(**given).last_hidden_state
            mask = given["attention_mask"][:, :, None]
            means = (states * mask).sum(dim=1) / mask.sum(dim=1)
            out.update(zip(batch, torch.nn.functional.normalize(means, dim=1), strict=True))
        vectors: NDArray[np.float32] = torch.stack([out[i] for i in range(len(texts))]).numpy()
        return vectors

    def of(self, questions: Sequence[str], answers: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """What detectors take: of the question, and of both side by side."""
        asked, answered = self(questions), self(answers)
        whole = self([f"{question} {answer}" for question, answer in zip(questions, answers, strict=True)])
        return {"question": asked, "both": np.concatenate([asked, answered, whole], axis=1)}
