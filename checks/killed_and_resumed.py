"""Does a run that was killed and resumed have the same bytes as a run that nobody disturbed?

    python checks/killed_and_resumed.py --data DIR --models DIR

Steps: `questions` kills the reading of the four sets 20 times with SIGKILL; `answers` kills answering with
SmolLM2-135M 5 times. The same question for a run on Ray: checks/ray_against_one_process.py faults.
"""

from __future__ import annotations

from pathlib import Path

from helpers.runs import different, killed, measured, real_model, study_on_files, write
from helpers.steps import SETS, Check, Figures, Options

check = Check(__doc__)


@check.step("data")
def questions(options: Options, work: Path) -> Figures:
    """Kill the reading of all questions 20 times."""
    datasets = [{"set": name, "path": str(options.data / f"{name}.jsonl")} for name in SETS]
    fields = {"name": "killed", "models": ["org/model"], "datasets": datasets, "shard_rows": 250}
    return disturbed(str(write(work, fields, "killed")), "questions", work, 20, 0.2)


@check.step("data", "models")
def answers(options: Options, work: Path) -> Figures:
    """Kill answering 600 questions 5 times."""
    models = [real_model("smollm2-135m", options.models, "SmolLM2-135M")]
    samples = {"popqa": 300, "nq": 300}
    study = study_on_files(work / "killed.yaml", models, options.data, samples, shard_rows=50)
    return disturbed(study, "answers", work, 5, 4.0)


def disturbed(study: str, stage: str, work: Path, kills: int, soonest: float) -> Figures:
    """Carry a study out twice, undisturbed and with kills, and compare every file."""
    calm, rough = work / "calm", work / "rough"
    words = ["run", study, "--until", stage, "--runs"]
    seconds = measured(*words, str(calm))["seconds"]
    moments = (soonest, max(2 * soonest, 0.7 * seconds))
    there = killed([*words, str(rough)], rough, f"{stage}/*.parquet", kills, moments)
    measured(*words, str(rough))
    gone = different(calm, rough)
    count = len(list(calm.rglob(f"{stage}/*.parquet")))
    return {"kills": kills, "shards": count, "shards at each kill": there, "identical": not gone, "different": gone}


@check.judge
def judge(figures: Figures) -> None:
    """Stop when a file differs."""
    assert all(each["identical"] for each in figures.values()), "a resumed run has other bytes"


if __name__ == "__main__":
    check()
