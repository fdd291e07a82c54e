"""Linear probes that read correctness from activations: out of fold, calibrated, and once more on each half."""
