"""The cost of a run, estimated before it starts."""
