"""Running a study: study files, the list of stages, the pipeline, its engines, and the status of a run."""
