"""Detectors on the Hugging Face hub: their two files, and a page that says what the detector promises and what not."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np

from anchorscope.detectors.detector import FittedDetector
from anchorscope.errors import hub_errors
from anchorscope.progress import told
from anchorscope.reach import hub_in_reach

STEM = "detector"
FILES = (f"{STEM}.json", f"{STEM}.safetensors")
_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
SHOWN = (0.1, 0.25, 0.5, 0.75, 1.0)  # shares of answers in the table of risk against coverage


def on_hub(path: str | Path) -> bool:
    """Whether this is a name on the hub: `owner/name`, where there is no folder `owner` here."""
    return isinstance(path, str) and _NAME.fullmatch(path) is not None and not Path(path).parent.exists()


def fetch(name: str, revision: str | None) -> Path:
    """Download the two files of a detector at one commit; their path without the ending."""
    from huggingface_hub import snapshot_download

    with hub_errors(name, "model"):
        folder = snapshot_download(
            name, revision=revision, allow_patterns=list(FILES), local_files_only=not hub_in_reach()
        )
    commit = Path(folder).name
    if revision != commit:
        told(f"{name}: commit {commit}. To load this one always, give revision='{commit}'.")
    return Path(folder) / STEM


def push(detector: FittedDetector, name: str, private: bool) -> str:
    """Upload a detector and its page; the commit."""
    from huggingface_hub import HfApi

    with tempfile.TemporaryDirectory() as made, hub_errors(name, "model"):
        folder = Path(made)
        detector.save(folder / STEM)
        (folder / "README.md").write_text(page(detector, name), encoding="utf-8")
        api = HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        done = api.upload_folder(
            repo_id=name, folder_path=folder, commit_message=f"{detector.card.detector} for {detector.about.name}"
        )
    return str(done.oid)


def page(detector: FittedDetector, name: str) -> str:
    """The page of a detector on the hub, in Markdown."""
    about, card = detector.about, detector.card
    model, dtype = about.model.get("id", about.name), about.model["dtype"]
    base = [f"base_model: {model}"] if about.model.get("kind") == "hub" else []
    lines = ["---", "library_name: anchorscope", "tags: [anchorscope, hallucination-detection]", *base, "---", ""]
    lines += [f"# Which answers of {about.name} are wrong?", ""]
    lines += [f"A detector for answers of {about.name}, loaded in {dtype}, under its own prompt.", ""]
    lines += ["```python", "import anchorscope", "", f'detector = anchorscope.Detector.load("{name}")']
    place = model if base else f"path/to/{model}"
    lines += [f'model = anchorscope.open_model("{place}", dtype="{dtype}")']
    lines += ['print(detector.answer(model, "Who wrote Frankenstein?").verdict)', "```", ""]
    lines += [f"- {line}." for line in str(card).splitlines()]
    lines += ["", "## What it promises", ""]
    lines += [*(detector.promise_in_words or ["It has no promise."]), *detector.cautions, ""]
    return "\n".join(lines + _risk(detector)) + "\n"


def _risk(detector: FittedDetector) -> list[str]:
    """How many answers are wrong among those with the lowest scores, as a table."""
    if detector.held_out is None:
        return []
    lines = ["## Risk against coverage", "", "Answers that the detector finds least likely wrong, at the base rate of "]
    lines[-1] += f"{100 * detector.base_rate:.1f} % wrong answers. Held-out answers, one of each cluster."
    lines += ["", "| share of answers shown | wrong among them (95 % interval) | |", "|---|---|---|"]
    for share in SHOWN:
        if (found := _lowest(detector, share)) is not None:
            value, low, high = (100 * number for number in found)
            bar = "█" * round(value / 5)
            lines.append(f"| {100 * share:.0f} % | {value:.0f} % ({low:.0f} to {high:.0f} %) | {bar} |")
    return lines


def _lowest(detector: FittedDetector, share: float) -> tuple[float, float, float] | None:
    """The share of wrong answers among this share of answers, at the base rate."""
    assert detector.held_out is not None
    limits = np.quantile(detector.held_out.scores, np.linspace(0, 1, 201))
    found = [detector.held_out.unflagged(float(limit), detector.base_rate) for limit in limits]
    return next((each.wrong for each in found if each is not None and each.share >= share - 1e-9), None)
