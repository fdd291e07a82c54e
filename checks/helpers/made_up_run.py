"""A made-up run of any size, without a model, from which a large report can be built.

`PYTHONPATH=checks python -m helpers.made_up_run FOLDER --samples 20000` makes FOLDER/made-up, a run directory of two
models and four sets.

Questions, answers and states are drawn. The package's own stages make the rest: grades, the choice of traced samples,
pathways, maps, evidence and the ledger. The world has two pathways: two in three answers draw their signal from the
question, the others from themselves. (worlds.py draws states and fits probes. Here read-outs are drawn directly, since
fitting probes to 20,000 samples takes long.) The same size and seed give the same run.

Above LARGE samples, the numbers of charts and claims are taken from a run of 1,000 samples, which is made first: they
take long to compute, and their size does not grow with the number of samples. Everything else has its full size.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

from anchorscope.answers.record import ANSWERS
from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.scored import read_comparison
from anchorscope.detectors.stage import comparison_stage
from anchorscope.evidence.ledger import write_ledger
from anchorscope.evidence.record import EVIDENCE
from anchorscope.evidence.stage import evidence_stage
from anchorscope.grades.stage import grades_stage
from anchorscope.pathways.layermap import mapstats_stage
from anchorscope.pathways.record import MAPSTATS, PATHWAYS
from anchorscope.pathways.stage import pathways_stage
from anchorscope.progress import printed, told
from anchorscope.questions.record import QUESTIONS
from anchorscope.report.draw.detectors import write_comparison
from anchorscope.spans.record import SPANS
from anchorscope.store import Kind, Store
from anchorscope.store.fill import fill, make
from helpers.made_up_cell import ASKED, MODELS, NAME, POINT, RIGHT, SETS, SMALL, Drawn, Size, put
from helpers.made_up_texts import Texts
from helpers.steps import new_parser

WORLD = 3  # raised when what is drawn changes: runs of an older one are made again


class Making:
    """Fills a run directory, one table after the other."""

    def __init__(self, store: Store, size: Size, smaller: Store | None = None) -> None:
        self.store, self.size, self.study, self.smaller = store, size, store.study, smaller
        self.cells = [(model, dataset) for model in MODELS for dataset in SETS]

    def __call__(self) -> None:
        """Fill all tables."""
        for dataset in SETS:
            texts = Texts(f"{self.study.seed}/{dataset}")
            count = round(ASKED * self.size.each)
            rows = [texts.question(dataset, number) for number in range(count)]
            inputs = {"made up": dataset, "seed": self.study.seed}
            put(self.store.questions(dataset), QUESTIONS, rows, inputs, self.study.shard_rows)
        for model, dataset in self.cells:
            with printed(f"{model}, {dataset}: made up", None):
                self.answers(model, dataset)
                drawn = Drawn(self.store, model, dataset, self.size)
                drawn.write()
                drawn.write_again()
                drawn.write_scores()
        if self.smaller is None:
            self.numbers()
        else:
            self.borrow(self.smaller)
        write_ledger(self.store)

    def numbers(self) -> None:
        """Make the numbers behind charts and claims with the package's own stages."""
        for model, dataset in self.cells:
            with printed(f"{model}, {dataset}: pathways", None):
                make(pathways_stage(self.store, model, dataset, POINT))
                make(mapstats_stage(self.store, model, dataset, POINT))
        for model, dataset in self.cells:
            with printed(f"{model}, {dataset}: evidence", None):
                make(evidence_stage(self.store, model, dataset, POINT))
        with printed("comparing detectors", None):
            make(comparison_stage(self.store))
            write_comparison(read_comparison(self.store), catalogue("mlp"), self.store.root / "detectors")

    def borrow(self, smaller: Store) -> None:
        """Copy these numbers from another run."""
        kinds: list[Kind[Any]] = [PATHWAYS.at(POINT), MAPSTATS.at(POINT), EVIDENCE.at(POINT)]
        for cell in self.cells:
            mine, theirs = self.store.results(*cell), smaller.results(*cell)
            for kind in kinds:
                plan = theirs.table(kind).plan
                mine.begin(kind, plan, {"borrowed": theirs.origin(kind)}, {"made up": True})
                copytree(theirs.folder / kind.name, mine.folder / kind.name, dirs_exist_ok=True)
        copytree(smaller.root / "detectors", self.store.root / "detectors", dirs_exist_ok=True)

    def answers(self, model: str, dataset: str) -> None:
        """Draw answers, grade them and find their spans."""
        cell, seed = self.store.results(model, dataset), self.study.seed
        texts, right = Texts(f"{seed}/{model}/{dataset}"), random.Random(f"{seed}/{model}/{dataset}/right")
        rows, spans = [], []
        for question in self.store.questions(dataset).table(QUESTIONS):
            good = right.random() < RIGHT
            text = "" if right.random() < 0.003 else texts.said(question, good)
            rows.append(texts.answer(question, text, good))
            spans.append(texts.spans(question, rows[-1]))
        about = {
            "questions": self.store.questions(dataset).origin(QUESTIONS),
            "model": {"kind": "made up", "id": model, "dtype": "float32", "attention": "none"},
            "prompt": {"head": "Q: …\n\n", "question": "Q: {question}", "tail": "\nA:", "bos": False, "shared_ids": []},
            "answers": self.study.answers.model_dump(mode="json"),
        }
        put(cell, ANSWERS, rows, about, self.study.shard_rows)
        fill(grades_stage(self.store, model, dataset))
        put(cell, SPANS, spans, {"answers": about, "spans": {}, "seed": seed}, self.study.shard_rows)


def made_up_run(folder: Path, samples: int, seed: int = 0) -> Path:
    """Make a run of so many samples in a folder, unless it is there, and return its path.

    What a large one borrows is made beside the folder.
    """
    root, done, size = folder / NAME, folder / f"{NAME}.done", Size.of(samples)
    wanted = f"world {WORLD}, {samples} samples, seed {seed}"
    if not done.exists() or done.read_text() != wanted:
        done.unlink(missing_ok=True)
        rmtree(root, ignore_errors=True)  # half of one, or one of another world
        smaller = Store.open(made_up_run(folder.parent / f"{NAME}-{SMALL}", SMALL, seed)) if size.large else None
        with Store.writing(root, size.study(seed)) as store:
            Making(store, size, smaller)()
        done.write_text(wanted)
    return root


def main() -> None:
    """Make a run."""
    parser = new_parser(__doc__)
    parser.add_argument("folder", type=Path, help="Write the run to FOLDER/made-up.", metavar="FOLDER")
    parser.add_argument("--samples", type=int, default=1000, help="Draw this many samples in all (default: 1000).")
    parser.add_argument("--seed", type=int, default=0, help="Draw from this seed (default: 0).")
    options = parser.parse_args()
    start = time.perf_counter()
    root = made_up_run(options.folder, options.samples, options.seed)
    told(f"{root}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
