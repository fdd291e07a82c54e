"""Trace some samples of PopQA with SmolLM2 and say how much memory that took: `memory.py SAMPLES [--answers]`.

With --answers only the answers are made, so that a second process only traces. Its peak is told twice: until tracing
begins (loading maps the file of weights beside its copy), and from there on. Linux only.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cases import MODELS, folder_of

from anchorscope import load_study
from anchorscope.progress import Advance, silent
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.stages import until
from anchorscope.store import Store
from anchorscope.traces.record import TRACES


class Peaks:
    """Watches the process: a progress bar that notes the highest memory so far when tracing begins, and forgets it."""

    before = 0

    @contextmanager
    def __call__(self, text: str, total: int | None) -> Iterator[Advance]:
        """Tell nobody how far it is."""
        if text.endswith(": tracing"):
            self.before = self.now()
            Path("/proc/self/clear_refs").write_text("5")
        with silent(text, total) as advance:
            yield advance

    @staticmethod
    def now() -> int:
        """The highest since it was forgotten, in MB."""
        lines = Path("/proc/self/status").read_text().splitlines()
        return round(int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024 / 1e6)


def main() -> None:
    """Make the answers, or trace them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("samples", type=int)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--answers", action="store_true")
    options = parser.parse_args()
    name, questions = "smollm2-135m", int(options.samples * 1.03)  # some are dropped
    place = options.work / f"memory-{options.samples}"
    path = options.work / f"memory-{options.samples}.yaml"
    path.write_text(json.dumps({
        "name": place.name,
        "models": [{"id": str(folder_of(name, options.models)), "name": MODELS[name], "dtype": "bfloat16"}],
        "datasets": [{"set": "popqa", "path": str(options.data / "popqa.jsonl"), "sample": questions}],
        "traces": {"max_right": options.samples, "max_wrong": options.samples},
    }))  # fmt: skip
    study = load_study(str(path))
    with Store.writing(place, study) as store:
        peaks = Peaks()
        run = Pipeline(store, peaks)
        run.make(until(study, "answers" if options.answers else "traces"))
        if options.answers:
            return
        traced = store.results(MODELS[name], "popqa").table(TRACES).plan.rows
    found = {"traced": traced, "before_mb": peaks.before, "peak_mb": peaks.now(), "seconds": round(run.times["traces"])}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
