"""Experiments that stand on their own feet, and the ledger that says what holds."""
