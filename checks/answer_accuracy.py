"""What share of each question set do the two small models answer right?

    python checks/answer_accuracy.py --data DIR --models DIR

1,000 questions of each set, 4 shots, bfloat16, through the command line; percent with 95 % Wilson intervals.
"""

from __future__ import annotations

from pathlib import Path

from anchorscope.pathways.intervals import wilson
from anchorscope.spans.samples import summary
from anchorscope.store import Store
from helpers.runs import measured, real_model, study_on_files
from helpers.steps import SETS, Check, Figures, Options
from weights import NAMES, SMALL

check = Check(__doc__)


@check.step("data", "models")
def accuracy(options: Options, work: Path) -> Figures:
    """Answer the questions and count right, wrong and dropped answers."""
    models = [real_model(name, options.models, NAMES[name]) for name in SMALL]
    samples = dict.fromkeys(SETS, options.questions)
    study = study_on_files(work / "accuracy.yaml", models, options.data, samples)
    figures: Figures = {"cost": measured("run", study, "--until", "answers", "--runs", str(work))}
    store = Store.open(work / "accuracy")
    for name in SMALL:
        for dataset in SETS:
            counts = summary(store.results(NAMES[name], dataset))
            shares = (counts["right"] / counts["answers"], *wilson(counts["right"], counts["answers"]))
            percent = [round(100 * share, 1) for share in shares]
            figures[f"{NAMES[name]}/{dataset}"] = {"percent": percent, **counts}
    return figures


check.option("--questions", "Ask this many questions of each set", 1_000)

if __name__ == "__main__":
    check()
