"""Does a small seeded run give the same bytes as an older checkout?

    python checks/same_bytes_as_before.py --before CHECKOUT --data DIR --models DIR

The run has SmolLM2-135M in float32, 500 questions of PopQA and 400 of TriviaQA, two sites, two positions,
from questions to figures. Every file of both runs is compared.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from helpers.runs import content, different, real_model, study_on_files, with_old_names
from helpers.steps import COMMAND, ROOT, Check, Figures, Options

check = Check(__doc__)


@check.step("before", "data", "models")
def run(options: Options, work: Path) -> Figures:
    """Carry the study out with both checkouts and list the files that differ."""
    models = [real_model("smollm2-135m", options.models, "SmolLM2", "float32")]
    samples = {"popqa": 500, "triviaqa": 400}
    fields: dict[str, Any] = {
        "traces": {"sites": ["mlp", "resid"], "positions": ["answer_last", "final"], "max_wrong": 120},
        "probes": {"resamples": 200, "repeats": 2},
        "shard_rows": 128,
    }
    roots = {"before": work / "before", "now": work / "now"}
    for name, checkout in (("before", options.before), ("now", options.now or ROOT)):
        study = study_on_files(work / "same.yaml", models, options.data, samples, **with_old_names(fields, checkout))
        words = [*COMMAND, "run", study, "--runs", str(roots[name])]
        env = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL)
    return {"files": len(content(roots["now"])), "different": different(roots["before"], roots["now"])}


check.option("--now", "Compare CHECKOUT instead of this checkout", type=Path, metavar="CHECKOUT")

if __name__ == "__main__":
    check()
