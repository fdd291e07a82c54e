"""Trace some samples of PopQA with SmolLM2 and say how much memory that took: `memory.py SAMPLES [--answers]`.

With --answers only the answers are made, so that the peak of the second process is that of tracing alone.
"""

from __future__ import annotations

import argparse
import json
import resource
from pathlib import Path

from cases import MODELS

from anchorscope import load_study
from anchorscope.activations import TABLE, Trace
from anchorscope.pipeline import Run
from anchorscope.progress import nobody, silent
from anchorscope.store import Store
from weights import unpacked


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
        "models": [{"id": str(unpacked(name, options.models)), "name": MODELS[name], "dtype": "bfloat16"}],
        "datasets": [{"set": "popqa", "path": str(options.data / "popqa.jsonl"), "sample": questions}],
        "traces": {"correct": options.samples, "wrong": options.samples},
    }))  # fmt: skip
    study = load_study(str(path))
    with Store.writing(place, study) as store:
        run = Run(store, silent, nobody, lambda *what: None)
        run.questions()
        if options.answers:
            run.answers(study.models[0])
            return
        run.traces(study.models[0])
        traced = store.results(MODELS[name], "popqa").table(TABLE, Trace).plan.rows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"traced": traced, "peak_mb": round(peak), "seconds": round(run.times["traces"])}))


if __name__ == "__main__":
    main()
