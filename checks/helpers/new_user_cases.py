"""Mistakes of new users, made in the folder of a run: what each one prints or raises, and its seconds, as JSON.

Run with the package of any checkout, which is why nothing but that package is imported here, and by name.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

Act = Callable[[], Any]
QUESTION, ANSWER = "Which hill of north is near the tower 1?", "Paris"


def command(*words: object) -> None:
    """The command line, in this process."""
    sys.argv = ["anchorscope", *map(str, words)]
    try:
        importlib.import_module("anchorscope.cli").main()
    except SystemExit as ended:
        print(f"[exit {ended.code or 0}]")


def lines_of(path: Path, *rows: dict[str, Any]) -> Path:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def cases(folder: Path) -> dict[str, Act]:
    """Every mistake by name, in order: later ones use what earlier ones made."""
    package: Any = importlib.import_module("anchorscope")
    run, saved = folder / "runs" / "s", folder / "d"
    printed = Path(package.__file__).with_name("cli").joinpath("detect.py").read_text(encoding="utf-8")
    output = "-o" if "--output" in printed else "--save"
    fit = ("detect", "fit", run, "--model", "one")
    long = {"question": f"Which {'very ' * 900}old hill?", "answer": "Rome"}
    given = [json.loads(row) for row in (folder / "given.jsonl").read_text(encoding="utf-8").splitlines()]
    study = json.loads((folder / "study.yaml").read_text(encoding="utf-8"))
    answers = lines_of(
        folder / "answers.jsonl",
        {"question": QUESTION, "answer": ANSWER},
        {"question": QUESTION, "answer": "one line\nanother line"},
        long,
    )
    lines_of(folder / "none.jsonl", *({**row, "label": False} for row in given))
    lines_of(folder / "more.jsonl", *given, {"question": "Which sea is this?", "answer": "none"})
    for name in ("none", "more"):
        source = {"source": "file", "file": f"{name}.jsonl"}
        lines_of(folder / f"{name}.yaml", {**study, "name": name, "answers": source})
    opened: Any = package.open_run(run)
    model: Any = package.open_model(str(folder / "one"), dtype="float32")

    def detector() -> Any:
        return package.Detector.load(saved)

    score = ("detect", "score", saved, answers, "--model", folder / "one")
    line = {"condition": "clean", "model": "one", "dataset": "north"}
    return {
        "detect fit: the threshold, and errors among what passes": lambda: command(
            *fit, "--detector", "stack", output, saved, "--at-most", "30% false alarms"
        ),
        "detect score: one scale, a two-line answer, an over-long question": lambda: command(*score),
        "detect score --dtype": lambda: command(*score, "--dtype", "float32"),
        "detect fit with a wrong promise": lambda: command(*fit, output, folder / "e", "--at-most", "5% nonsense"),
        "detect fit with a wrong detector": lambda: command(*fit, "--detector", "stak", output, folder / "e"),
        "run.line with a mistyped statistic": lambda: opened.line("aurroc", **line),
        "run.line, a right call": lambda: len(opened.line("auroc", **line)),
        "run.table of what was not made": lambda: opened.table("evidence").num_rows,
        "print(model), in lines": lambda: len(repr(model).splitlines()),
        "repr(detector), in characters": lambda: len(repr(detector())),
        "chat messages as a question": lambda: detector().answer(model, [{"role": "user", "content": QUESTION}]),
        "an answer None": lambda: detector().score(model, [QUESTION], [None]),
        "lists of unequal length": lambda: detector().score(model, [QUESTION, QUESTION], [ANSWER]),
        "layers=3": lambda: package.cut(model, "The capital of France is", "France", layers=3),
        "detect fit of a detector without a route": lambda: command(
            *fit, "--detector", "single_layer", output, folder / "plain"
        ),
        "route=True with a detector that has none": lambda: package.Detector.load(folder / "plain").score(
            model, [QUESTION], [ANSWER], route=True
        ),
        "a wrong key of Study": lambda: package.Study(name="s", model=["a/b"], datasets=["nq"]),
        "no right answer at all": lambda: command("run", folder / "none.yaml", "--runs", folder / "runs"),
        "rows of an answers file that match no question": lambda: command(
            "run", folder / "more.yaml", "--runs", folder / "runs", "--until", "answers"
        ),
        "show without colours": lambda: command("show", run, "-n", "1"),
    }


def answer(act: Act) -> dict[str, Any]:
    """What an act prints, returns or raises, squeezed, and its seconds."""
    stream, start = io.StringIO(), time.perf_counter()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        try:
            value = act()
            print("" if value is None else value)
        except Exception as error:  # noqa: BLE001 what a person would see
            print(f"{type(error).__name__}: {error}")
    squeezed = [" ".join(line.split()) for line in stream.getvalue().splitlines() if line.strip()]
    return {"seconds": round(time.perf_counter() - start, 1), "answer": "\n".join(squeezed)[-700:]}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({name: answer(act) for name, act in cases(Path(sys.argv[1])).items()}))
