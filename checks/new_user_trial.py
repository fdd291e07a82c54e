"""What does a new user get who makes the mistakes of two trials, and how long does it take?

    python checks/new_user_trial.py [--before CHECKOUT]

Two new users, a researcher and an engineer, once tried sixty mistakes. Those whose answers were mended are made again,
on a run of a tiny model; what is printed or raised is recorded with its seconds (after imports). With --before the same
is done with an older checkout, which makes its own run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from helpers.runs import tiny_study
from helpers.steps import ROOT, Check, Figures, Options, last_json

check = Check(__doc__)

CASES = Path(__file__).parent / "helpers" / "new_user_cases.py"


def trial(checkout: Path, work: Path) -> Figures:
    """Make a run with a checkout and everything that a new user did with it."""
    work.mkdir()
    study = tiny_study(work, {"north": (45, 60)}, {"one": "llama"})
    study = {key: study[key] for key in ("name", "models", "datasets", "answers", "prompt")}
    study["models"] = [{"id": str(work / "one"), "name": "one", "dtype": "float32"}]
    study["probes"] = {"repeats": 1, "folds": 3, "strengths": [0.01], "resamples": 100}
    (work / "study.yaml").write_text(json.dumps(study))
    env = {**os.environ, "PYTHONPATH": str(checkout / "src"), "HF_HUB_OFFLINE": "1", "COLUMNS": "160"}
    env["ANCHORSCOPE_CACHE"] = str(work / "cache")
    command = [sys.executable, "-m", "anchorscope.cli", "run", str(work / "study.yaml"), "--runs", str(work / "runs")]
    subprocess.run(command, env=env, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, str(CASES), str(work)], env=env, cwd=work, capture_output=True, text=True, timeout=1800
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    figures: Figures = last_json(done.stdout)
    return figures


@check.step()
def mistakes(options: Options, work: Path) -> Figures:
    """Every mistake: the answer, before and now, and its seconds."""
    now = trial(ROOT, work / "now")
    before = trial(options.before, work / "before") if options.before else {}
    return {name: {"before": before[name], "now": now[name]} if before else now[name] for name in now}


check.option("--before", "Also try CHECKOUT, an older version of the code", type=Path, metavar="CHECKOUT")

if __name__ == "__main__":
    check()
