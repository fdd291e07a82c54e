"""The command that says what holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from anchorscope.cli.console import RunArgument, clean, out, path_of, table_of

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
            help="A ledger (claims.json): exit with 1 if a verdict is another.",
            parser=path_of,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ledger as JSON.")] = False,
) -> None:
    """Say claim by claim what holds for the models of a run, with the numbers; kept as RUN/claims.json."""
    from anchorscope.evidence.ledger import changes, read_ledger, write_ledger
    from anchorscope.evidence.record import LEDGER
    from anchorscope.store import Store

    expected = read_ledger(expect) if expect else None
    store = Store.open(run)
    verdicts = write_ledger(store)
    if as_json:
        typer.echo((store.root / LEDGER).read_text(encoding="utf-8"), nl=False)
    else:
        for model in dict.fromkeys(each.model for each in verdicts):
            _print([each for each in verdicts if each.model == model])
        out.print(
            "✓ holds (p < 0.025, one-sided, after Holm over all claims about the model), ✗ does not hold (the 95 % "
            "interval lies on the other side of the threshold), ? cannot tell. Value and 95 % interval beside it.",
            style="dim",
        )
    if expected is not None:
        changed = changes(expected, verdicts)
        for each in changed:
            out.print(f"changed: {clean(each)}", style="red", soft_wrap=True)
        if changed:
            raise typer.Exit(1)
        out.print(f"All {len(expected)} verdicts are as expected.", style="green")


def _print(verdicts: list[ClaimVerdict]) -> None:
    """The verdicts on one model, or pair: a row for each claim, a column for each set."""
    sets = list(dict.fromkeys(each.dataset for each in verdicts if each.dataset != "all"))
    table = table_of("claim", "holds if", *(sets or ["all sets"]))
    for name in dict.fromkeys(each.claim for each in verdicts):
        mine = {each.dataset: each for each in verdicts if each.claim == name}
        first = next(iter(mine.values()))
        sign = ">" if first.side == "above" else "<"
        if "all" in mine:
            cells = [_cell(mine["all"])] + [Text("")] * (len(sets) - 1)
        else:
            cells = [_cell(mine[each]) if each in mine else Text("") for each in sets]
        table.add_row(first.statement, f"{sign} {first.threshold:g}" if first.threshold else "p", *cells)
    out.print(f"\n[bold]{clean(verdicts[0].model)}[/bold]")
    out.print(table)


def _cell(verdict: ClaimVerdict) -> Text:
    """The sign, the value and its interval."""
    if verdict.value is None or verdict.low is None or verdict.high is None:
        return Text(f"? n = {verdict.n}", style="dim")
    digits = 1 if abs(verdict.threshold) >= 1 else 3
    numbers = [f"{each:.{digits}f}" for each in (verdict.value, verdict.low, verdict.high)]
    ends = f" [{numbers[1]}, {numbers[2]}]" if verdict.low < verdict.high else ""
    return Text(f"{SIGNS[verdict.verdict]} {numbers[0]}{ends}", style=STYLES[verdict.verdict])


COMMANDS = (claims,)
