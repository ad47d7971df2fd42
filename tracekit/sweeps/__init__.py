"""Sweeps: many replays, defined in one file and run in parallel processes."""
