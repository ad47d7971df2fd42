"""Sweeps: many replays, defined in one file, in parallel processes."""
