"""What do cut passages cost, and can one tell whether a passage supports an answer?

    python checks/context.py --data DIR --models DIR [--run RUN]

Steps: `cost` times the sweep over three routes beside one plain pass over the same prompts; `conflicts` scores two
given names under two passages and under none, and compares what tells which name a passage supports
(helpers/conflict_scores.py, helpers/conflict_numbers.py); `lengths` fits a detector on short passages of SQuAD and asks
it about longer and longer prompts. Tests compare cuts with attention by hand (tests/traces/test_context.py) and
verdicts with known truths (tests/evidence/test_routes.py).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import torch

from anchorscope.api.detectors import fit_run
from anchorscope.detectors.grounding import CONTROLS
from anchorscope.detectors.session import JudgedAnswer
from anchorscope.grades.grading import grader
from anchorscope.models.opened import open_model
from anchorscope.questions.definition import PLAIN
from anchorscope.questions.file_rows import FileRows
from anchorscope.questions.record import Question
from anchorscope.questions.row import to_question
from anchorscope.spans.make import SampleMaker
from anchorscope.store import Store
from anchorscope.study import TraceSpec
from anchorscope.study.terms import PASSAGE
from anchorscope.traces.conditions import CUTS
from anchorscope.traces.passes import Passes
from anchorscope.traces.record import TRACES
from anchorscope.traces.sweep import trace_samples
from anchorscope.traces.tracer import Tracer
from helpers.conflict_numbers import Number, all_numbers, write_numbers
from helpers.conflict_scores import in_hash_order, plainly, read_conflicts, read_scores, score_all
from helpers.models import loaded
from helpers.steps import Check, Figures, Options
from weights import SMALL, TITLES, unpacked

check = Check(__doc__)
CUT_PASSAGES = tuple(name for name in PASSAGE if name in CUTS)
ROUNDS = 5
SWEEPS = {
    "clean and both knockouts": TraceSpec(conditions=["clean", "knockout", "knockout_context"]),
    "all that cut a passage": TraceSpec(conditions=["clean", "knockout", *CUT_PASSAGES]),
}


@check.step("data", "models")
def cost(options: Options, work: Path) -> Figures:
    """Seconds of the sweep over three routes, beside one plain pass over the same prompts, in turns."""
    model, prompter = loaded(unpacked("smollm2-135m", options.models))
    maker = SampleMaker(prompter, CONTROLS)
    samples = [maker(question, question.answers[0]) for question in _squad(options.data, options.questions)]
    samples = [sample for sample in samples if sample.spans.dropped is None]
    ids = [[*prompter.shared_ids, *s.answer.prompt_ids, *s.answer.answer_ids] for s in samples]

    def bare() -> None:
        with torch.inference_mode():
            for row in sorted(ids, key=len):  # one at a time: nothing is padded
                model.network.get_decoder()(torch.tensor([row]), use_cache=False)

    acts: dict[str, Callable[[], object]] = {"bare": bare}
    floors: dict[str, float] = {}
    whole = sum(map(len, ids))
    for name, spec in SWEEPS.items():
        tracer = Tracer(model, prompter.shared_ids, spec.sites)
        passes = Passes(spec, prompter.shared_ids, tracer.layers)
        acts[name] = lambda tracer=tracer, spec=spec, passes=passes: trace_samples(tracer, samples, spec, passes)  # type: ignore[misc]
        streams = [stream for sample in samples for stream in passes.streams(sample)]
        floors[name] = (len(prompter.shared_ids) + sum(len(stream.ids) for stream in streams)) / whole
    seconds: dict[str, list[float]] = {name: [] for name in acts}
    for turn in range(ROUNDS + 1):
        for name, act in acts.items():
            start = time.perf_counter()
            act()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    figures: Figures = {"samples": len(samples), "tokens": whole / len(samples)}
    for name in SWEEPS:
        ratios = [own / plain for own, plain in zip(seconds[name], seconds["bare"], strict=True)]
        figures[name] = {
            "sweep / bare": median(ratios), "from": min(ratios), "to": max(ratios), "floor / bare": floors[name]
        }  # fmt: skip
    return figures


def _squad(data: Path, count: int) -> list[Question]:
    """Questions of SQuAD with their passages, from all over the set."""
    rows = [to_question(row, PLAIN, [], str(number)) for number, row in FileRows(data / "squad.jsonl")]
    return rows[:: len(rows) // count][:count]


@check.step("data", "models", by_default=False)
def conflicts(options: Options, work: Path) -> Figures:
    """Log-probabilities of both names under both passages and under none; the table goes to --table."""
    rows = read_conflicts(options.data)
    folder: Path = options.scores or work
    figures: Figures = {}
    numbers: list[Number] = []
    for name in SMALL:
        file, title = folder / f"{name}.csv", TITLES[name]
        figures[title] = {}
        if options.minutes:
            model, prompter = loaded(unpacked(name, options.models), "float32")
            counts = options.cuts, options.sentences
            found = score_all(model, prompter, rows, *counts, file, options.minutes)
            plain = plainly(model, prompter, in_hash_order(rows)[0])
            figures[title]["off plain passes by"] = max(abs(getattr(found[0], key) - plain[key]) for key in plain)
        if not file.exists():
            figures[title]["left out"] = f"there is no {file}"
            continue
        scores = read_scores(file)
        numbers += all_numbers(title, scores, {row["id"]: row for row in rows})
        figures[title]["questions"] = len(scores)
    if options.table:
        write_numbers(options.table, numbers)
    return figures


@check.step("data", "run")
def lengths(options: Options, work: Path) -> Figures:
    """What a detector that was fitted on SQuAD's passages says of other questions with longer and longer ones."""
    if not has_sets(options.run, "squad"):
        return {"left out": "the run has no set `squad`"}
    store = Store.open(options.run)
    spec = store.study.models[0]
    detector = fit_run(store, spec.name, ["squad"], "combined")
    session = detector.session(open_model(spec.id, dtype=detector.about.model["dtype"]))
    tokenizer = session.model.tokenizer
    known = {row.id for row in store.results(spec.name, "squad").table(TRACES)}
    rows = _squad(options.data, 10_000)
    text = " ".join(dict.fromkeys(row.context or "" for row in rows[:200]))
    asked = [row for row in rows if row.id not in known][:: len(rows) // options.questions][: options.questions]
    figures: Figures = {"fitted on at most": detector.moments.prompt, "judged up to": detector.moments.longest_prompt}
    for tokens in (0, 512, 1024, 2048):
        longer = tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids[:tokens])
        passages = [f"{longer} {row.context}".strip() if tokens else row.context for row in asked]
        answers = session.answer([row.question for row in asked], False, passages)
        figures[f"{tokens} tokens before" if tokens else "as they are"] = _judged(asked, answers)
        print(tokens, figures, flush=True)
    return figures


def has_sets(run: Path, *names: str) -> bool:
    """Whether a run has these sets."""
    return {*names} <= {dataset.name for dataset in Store.open(run).study.datasets}


def _judged(asked: Sequence[Question], answers: Sequence[JudgedAnswer]) -> Figures:
    """Verdicts, and how many of those that passed are wrong."""
    pairs = list(zip(asked, answers, strict=True))
    right = [bool(grader()(answer.answer, row.answers, row.question).correct) for row, answer in pairs]
    verdicts: Counter[str] = Counter(answer.verdict.decision for answer in answers)
    passed = [ok for ok, answer in zip(right, answers, strict=True) if answer.verdict.decision == "pass"]
    return {**verdicts, "right": sum(right), "wrong among passed": sum(not ok for ok in passed)}


check.option("--questions", "Time this many questions", 24)
check.option("--minutes", "Start no further questions of conflicts after this time per model; 0 reads --scores", 25.0)
check.option("--cuts", "Cut the passages of this many conflicts", 240)
check.option("--sentences", "Cut single sentences of this many conflicts", 120)
check.option("--scores", "Keep the log-probabilities of conflicts in FOLDER, to continue", metavar="FOLDER", type=Path)
check.option("--table", "Write the numbers of conflicts to FILE", metavar="FILE", type=Path)

if __name__ == "__main__":
    check()
