"""Readers of machine lists and node events next to a scheduler's log: one module per kind of file."""
