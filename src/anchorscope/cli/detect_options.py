"""Arguments and options that commands about detectors share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anchorscope.cli.console import path_of

RunOrFile = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|FILE", help="Run directory, or file of labelled answers (JSONL, CSV or Parquet).", parser=path_of
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Use this model of the run. Repeat the option for several (default: all).",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        "-d",
        metavar="SET",
        help="Use this dataset of the run. Repeat the option for several (default: all).",
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine-of",
        metavar="STUDY",
        help="Compute where `engine` of the study STUDY says, for example on a Ray cluster (default: in this process).",
    ),
]
Saved = Annotated[
    Path, typer.Argument(metavar="DETECTOR", help="Path of a detector that `detect fit` saved.", parser=path_of)
]
Answers = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="File of answers with the columns question and answer, and optionally label (true if right) and subject.",
    ),
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        help="Load the model in DTYPE (default: the dtype in which the detector was fitted).",
    ),
]
Reads = Annotated[
    str,
    typer.Option(
        "--model", "-m", metavar="MODEL", help="Read the answers with MODEL, a hub id, a folder or a .gguf file."
    ),
]
