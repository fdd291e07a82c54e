"""Running a study on a Ray cluster."""
