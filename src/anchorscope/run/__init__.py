"""A study carried out: study files, the list of stages, the pipeline, its engines, and how far a run is."""
