"""Pictures: lines, heat maps, the ledger, detectors, one sample; and how they are saved."""
