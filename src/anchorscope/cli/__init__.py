"""The command line. It parses arguments, calls the package and prints, and holds no logic of its own."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer

from anchorscope import __version__
from anchorscope.cli import detect, doctor, grounded, results, runs, serve, studies, words
from anchorscope.cli.console import clean, err, out
from anchorscope.errors import EXIT_ERROR, AnchorscopeError

app = typer.Typer(
    name="anchorscope",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find out whether a model's hidden states recognise a wrong answer from the question or from the answer.",
    epilog="Exit codes: 0 done, 1 a check failed, 2 wrong command line, 3 an error that you can fix, 130 stopped "
    "(Ctrl-C). Start with: anchorscope demo",
)
for command in (
    *studies.COMMANDS,
    *runs.COMMANDS,
    *results.COMMANDS,
    *doctor.COMMANDS,
    *grounded.COMMANDS,
    *words.COMMANDS,
):
    app.command()(command)
app.command("list")(studies.list_names)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(serve.serve)
app.add_typer(detect.app)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"anchorscope {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. An AnchorscopeError is printed without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode shows ? for Δ
    try:
        app()
    except AnchorscopeError as error:
        err.print(f"[bold red]error:[/bold red] {clean(error.message)}", soft_wrap=True)
        if error.hint:
            err.print(clean(error.hint), style="cyan", soft_wrap=True)
        sys.exit(EXIT_ERROR)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            _hang_up()
        place = f": {error.filename}" if error.filename else ""
        err.print(f"[bold red]error:[/bold red] {clean(f'{error.strerror or error}{place}')}", soft_wrap=True)
        sys.exit(EXIT_ERROR)


def _hang_up() -> NoReturn:
    """End quietly, because the program that reads the output (such as `head`) has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
