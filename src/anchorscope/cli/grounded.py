"""The command that measures whether answers came from their passages."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from anchorscope.cli.console import path_of, progress, tell
from anchorscope.cli.detect import Reads, check_model
from anchorscope.errors import DetectorError


def grounded(
    answers: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="File of answers with the columns question, answer and context (the passage). --fit also needs "
            "source (passage or memory).",
            parser=path_of,
        ),
    ],
    model: Reads,
    rule: Annotated[
        Path | None,
        typer.Option("--rule", metavar="RULE", help="Judge with RULE, a file that --fit saved.", parser=path_of),
    ] = None,
    fit: Annotated[
        Path | None,
        typer.Option(
            "--fit",
            metavar="RULE",
            help="Fit a rule on answers whose source is known, and save it to the file RULE.",
            parser=path_of,
        ),
    ] = None,
    at_most: Annotated[
        float,
        typer.Option("--at-most", help="With --fit, promise at most this share of wrong verdicts.", min=0.001, max=0.5),
    ] = 0.1,
    sentences: Annotated[
        bool, typer.Option("--sentences", help="Also cut the attention to the sentences that hold the answer.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write JSON lines to FILE (default: print them).", parser=path_of
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="Load the model in this dtype: auto, bfloat16, float32 or float64.")
    ] = "auto",
) -> None:
    """Score answers with and without their passages. With a rule, say whether they came from there."""
    from anchorscope.answers.answer_lines import read_lines
    from anchorscope.store.files import write_output
    from anchorscope.study import ModelSpec

    # report a mistake before anything heavy is loaded
    read_lines(answers)
    check_model(model, dtype)
    if rule is not None and not rule.is_file():
        raise DetectorError(f"there is no rule at {rule}", "Check the path, or make one with --fit.")
    with progress("starting", None):
        from anchorscope.detectors.grounding import GroundingRule, fit_rule, ground_file
    judge = GroundingRule.load(rule) if rule is not None else None
    found, lines, counts = [], [], Counter[str]()
    for line, grounding in ground_file(answers, model, dtype=dtype, rule=judge, sentences=sentences, progress=progress):
        found.append((line, grounding))
        record = {"question": line.question, "answer": line.answer, **grounding.record()}
        lines.append(json.dumps(record, ensure_ascii=False))
        counts[grounding.source] += 1
        if save is None and fit is None:
            typer.echo(lines[-1])
    if save is not None:
        write_output(save, "\n".join(lines) + "\n")
    if fit is not None:
        fitted = fit_rule(found, ModelSpec(id=model).name, at_most)
        fitted.save(fit)
        tell(str(fitted))
    else:
        tell(", ".join(f"{count:,} {source}" for source, count in counts.items()))


COMMANDS = (grounded,)
