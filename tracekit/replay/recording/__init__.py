"""Replay the recorded schedule itself."""
