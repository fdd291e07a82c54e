"""What a run keeps: its directory with manifests, its tables, and the stages that fill them."""

from __future__ import annotations

from anchorscope.store.guard import Guard
from anchorscope.store.rundir import Cell, Store
from anchorscope.store.stage import Forward, Job, Parts, Sharded, StageDef, Whole
from anchorscope.store.table import Kind, Plan, Table

__all__ = [
    "Cell", "Forward", "Guard", "Job", "Kind", "Parts", "Plan", "Sharded", "StageDef", "Store", "Table", "Whole",
]  # fmt: skip
