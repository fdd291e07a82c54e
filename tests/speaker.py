"""A tiny model that says words, and questions of which it answers every second one right: for whole runs."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from anchorscope import ModelSpec, PromptSpec
from anchorscope.answers.generate import Generator
from anchorscope.models.load import Model, load_model
from anchorscope.models.prompts import Prompter
from anchorscope.questions.definition import PUBLISHED
from conftest import write_jsonl
from tiny import save_tiny


def make_speaker(folder: Path) -> Model:
    """A tiny model that can say nothing but letters, spaces and line ends."""
    save_tiny("llama", folder)
    spec = ModelSpec(id=str(folder), name="speaker", dtype="float32")
    model = load_model(spec)
    with torch.no_grad():
        for token in range(len(model.tokenizer)):
            if not re.fullmatch(r" ?[A-Za-z]+|\n", model.tokenizer.decode([token])):
                model.network.lm_head.weight[token] = 0  # some other one is always above
    model.network.save_pretrained(folder)
    return load_model(spec)


def write_sets(speaker: Model, folder: Path, count: int = 60) -> Path:
    """The four sets; of every second question, what the model will say is an accepted answer."""
    folder.mkdir(parents=True, exist_ok=True)
    prompter = Prompter(speaker.tokenizer, PromptSpec(), speaker.wants_bos)
    generate = Generator(speaker, prompter.shared_ids, 24, 8192)
    for name in PUBLISHED:
        texts = [f"Which {'river' if i % 3 else 'hill'} is near {name} {i}?" for i in range(count)]
        said = [
            speaker.tokenizer.decode(made.ids, skip_special_tokens=True).strip()
            for made in generate([prompter(text).ids for text in texts])
        ]
        rows = [
            {"id": f"q{i}", "question": text, "answers": ["Danube", *([said[i]] if i % 2 and said[i] else [])]}
            for i, text in enumerate(texts)
        ]
        write_jsonl(folder / f"{name}.jsonl", [row | {"subject": f"{name} {row['id']}"} for row in rows])
    return folder
