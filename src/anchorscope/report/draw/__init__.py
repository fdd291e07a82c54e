"""Pictures: lines, the ledger, detectors, one sample; and how they are saved."""
