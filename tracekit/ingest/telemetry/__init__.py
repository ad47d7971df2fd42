"""Readers of GPU and host samples next to a scheduler's log: one module per kind of file."""
