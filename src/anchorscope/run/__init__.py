"""Whole runs: study files, the pipeline and what carries its stages out, how far a run is, and one sample by itself."""
