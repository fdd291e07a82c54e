"""Models: their sources, the modules that are read in them, and how they are loaded."""
