"""A study carried out on a Ray cluster."""
