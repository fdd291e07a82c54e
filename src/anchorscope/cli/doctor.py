"""The command that tests whether anchorscope works on a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from anchorscope.cli.console import clean, out, progress, table_of
from anchorscope.errors import ModelError


def doctor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hub id, folder or .gguf file of the model.")],
    dtype: Annotated[
        str, typer.Option("--dtype", help="Load the model in this dtype: auto, bfloat16, float32 or float64.")
    ] = "auto",
    style: Annotated[str, typer.Option("--style", help="Prompt in this style: completion or chat.")] = "completion",
    quick: Annotated[bool, typer.Option("--quick", help="Skip the slow checks.")] = False,
    sites: Annotated[
        str,
        typer.Option(
            "--sites",
            metavar="LAYERS,ATTN,MLP",
            help="Name the modules of a model type that `anchorscope list models` does not list, for example "
            "model.layers,self_attn,mlp.",
        ),
    ] = "",
) -> None:
    """Check that anchorscope's fast computations agree with slow, plain ones on a model."""
    from anchorscope.models.source import locate_model
    from anchorscope.study import ModelSpec, PromptSpec
    from anchorscope.study.validation import build

    spec = build(ModelSpec, id=model, dtype=dtype, **({"sites": _sites(sites)} if sites else {}))
    prompt = build(PromptSpec, style=style)
    locate_model(spec, Path())  # a mistake is known before anything heavy is loaded
    with progress(f"{spec.name}: loading", None):
        from anchorscope.models.load import load_model
        from anchorscope.models.prompts import Prompter
        from anchorscope.traces.doctor import Doctor

        loaded = load_model(spec)
        prompter = Prompter(loaded.tokenizer, prompt, loaded.wants_bos)
    with progress(f"{spec.name}: self-test", None):
        checks = Doctor(loaded, prompter).examine(quick)
    table = table_of("check", "", "found")
    marks = {True: ("passed", "green"), False: ("FAILED", "bold red"), None: ("–", "dim")}
    for check in checks:
        word, colour = marks[check.passed]
        table.add_row(check.name, Text(word, style=colour), clean(check.detail))
    out.print(table)
    failed = [check for check in checks if check.passed is False]
    for check in failed:
        out.print(f"[bold]{check.name}[/bold]: {clean(check.advice)}")
    if failed:
        raise typer.Exit(1)
    kind = str(loaded.network.dtype).removeprefix("torch.")
    scale = "the length of the layer's states" if kind == "bfloat16" else "the layer's largest activation"
    out.print(f"{clean(spec.name)} is sound in {kind}. Differences are relative to {scale}.")


def _sites(words: str) -> dict[str, str]:
    parts = [part.strip() for part in words.split(",")]
    if len(parts) != 3:
        raise ModelError(
            f"--sites takes three module paths, separated by commas, not {len(parts)}",
            "For example: --sites model.layers,self_attn,mlp",
        )
    return dict(zip(("layers", "attn", "mlp"), parts, strict=True))


COMMANDS = (doctor,)
