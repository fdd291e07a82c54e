"""Experiments beside the charts, and the ledger that says which claims hold."""
