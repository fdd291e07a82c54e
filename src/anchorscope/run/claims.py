"""The ledger of a run: verdicts on every claim, from its `evidence` tables."""

from __future__ import annotations

from anchorscope.errors import StoreError
from anchorscope.evidence.ledger import ledger, to_json
from anchorscope.evidence.lines import lines_of
from anchorscope.evidence.record import LEDGER, Verdict
from anchorscope.store import Store
from anchorscope.store.files import write_text


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
