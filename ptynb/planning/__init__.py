"""Memory, time and number of engines, estimated before a run."""
