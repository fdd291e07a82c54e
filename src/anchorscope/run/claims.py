"""The ledger of a run: verdicts on every claim, from its `evidence` tables."""

from __future__ import annotations

from anchorscope.errors import StoreError
from anchorscope.evidence.ledger import ledger, to_json
from anchorscope.evidence.lines import Lines, curves_of
from anchorscope.evidence.record import EVIDENCE, LEDGER, Verdict
from anchorscope.store import Store
from anchorscope.store.files import write_text
from anchorscope.study.terms import ReadPoint


def lines_of(store: Store, point: ReadPoint) -> dict[str, dict[str, Lines]]:
    """The lines of every model and set that has evidence."""
    found: dict[str, dict[str, Lines]] = {}
    for model in store.study.models:
        for dataset in store.study.datasets:
            cell = store.results(model.name, dataset.name)
            if cell.entry(EVIDENCE.at(point)) is not None:
                found.setdefault(model.name, {})[dataset.name] = curves_of(cell.table(EVIDENCE.at(point)))
    return found


def claims_of(store: Store) -> list[Verdict]:
    """The verdicts of a run, at its first read point."""
    lines = lines_of(store, store.study.traces.points[0])
    if not lines:
        raise StoreError(
            f"{store.root} has no evidence yet",
            "Say `evidence: {}` in the study and run it; or no set had enough right answers: sample more.",
        )
    return ledger(lines)


def write_ledger(store: Store) -> list[Verdict]:
    """Make the ledger and keep it with the run."""
    verdicts = claims_of(store)
    point = store.study.traces.points[0]
    write_text(store.root / LEDGER, to_json(store.study.name, verdicts, {"read": str(point)}))
    return verdicts
