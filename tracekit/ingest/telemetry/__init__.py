"""Samples of GPUs and hosts that stand beside a scheduler's log, one module a kind of file."""
