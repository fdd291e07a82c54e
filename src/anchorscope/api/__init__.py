"""The Python functions: whole runs, opened runs, one sample, and probes on your own activations."""
