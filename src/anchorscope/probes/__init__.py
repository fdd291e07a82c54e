"""Linear probes that read from activations whether an answer is right: out of fold, calibrated, and also by halves."""
