"""The Python doors: whole runs, opened runs, one sample, and probes on activations of one's own."""
