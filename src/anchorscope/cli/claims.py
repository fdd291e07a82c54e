"""The command that prints the ledger of claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from anchorscope.cli.console import RunArgument, clean, of_run, out, path_of, table_of

if TYPE_CHECKING:
    from anchorscope.evidence.record import ClaimVerdict

STYLES = {"holds": "green", "does not hold": "red", "cannot tell": "yellow"}
SIGNS = {"holds": "✓", "does not hold": "✗", "cannot tell": "?"}


def claims(
    run: RunArgument,
    expect: Annotated[
        Path | None,
        typer.Option(
            "--expect",
            metavar="FILE",
            help="Compare with the ledger in FILE (claims.json), and exit with 1 if any verdict has changed.",
            parser=path_of,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ledger as JSON.")] = False,
) -> None:
    """Print the verdict on every claim about the models of a run, with its numbers, and write RUN/claims.json."""
    from anchorscope.evidence.ledger import changes, read_ledger, write_ledger
    from anchorscope.evidence.record import LEDGER
    from anchorscope.store import Store

    expected = read_ledger(expect) if expect else None
    store = Store.open(run)
    with of_run(run):
        verdicts = write_ledger(store)
    if as_json:
        typer.echo((store.root / LEDGER).read_text(encoding="utf-8"), nl=False)
    else:
        for model in dict.fromkeys(verdict.model for verdict in verdicts):
            _print([verdict for verdict in verdicts if verdict.model == model])
        out.print(
            "✓ holds (p < 0.025, one-sided, after Holm's correction over all claims about the model), ✗ does not hold "
            "(the 95 % interval lies on the other side of the threshold), ? cannot tell. Each sign is followed by the "
            "value and its 95 % interval.",
            style="dim",
        )
    if expected is not None:
        changed = changes(expected, verdicts)
        for change in changed:
            out.print(f"changed: {clean(change)}", style="red", soft_wrap=True)
        if changed:
            raise typer.Exit(1)
        out.print(f"All {len(expected)} verdicts are as expected.", style="green")


def _print(verdicts: list[ClaimVerdict]) -> None:
    """Print the verdicts on one model, or pair of models, with a row per claim and a column per dataset."""
    sets = list(dict.fromkeys(verdict.dataset for verdict in verdicts if verdict.dataset != "all"))
    out.print(f"\n[bold]{clean(verdicts[0].model)}[/bold]")
    for section in dict.fromkeys(verdict.section for verdict in verdicts):
        table = table_of("claim", "holds if", *(sets or ["all datasets"]))
        of_section = [verdict for verdict in verdicts if verdict.section == section]
        for name in dict.fromkeys(verdict.claim for verdict in of_section):
            mine = {verdict.dataset: verdict for verdict in of_section if verdict.claim == name}
            first = next(iter(mine.values()))
            if "all" in mine:
                cells = [_cell(mine["all"])] + [Text("")] * (len(sets) - 1)
            else:
                cells = [_cell(mine[dataset]) if dataset in mine else Text("") for dataset in sets]
            table.add_row(first.statement, first.condition, *cells)
        out.print(section)
        out.print(table)


def _cell(verdict: ClaimVerdict) -> Text:
    """The sign, the value and its interval."""
    words = verdict.words(1 if abs(verdict.threshold) >= 1 else 3)
    if verdict.value is None:
        return Text(words, style="dim")
    return Text(f"{SIGNS[verdict.verdict]} {words}", style=STYLES[verdict.verdict])


COMMANDS = (claims,)
