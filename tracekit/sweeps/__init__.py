"""Sweeps: many replays that are defined in one file and run in parallel processes."""
