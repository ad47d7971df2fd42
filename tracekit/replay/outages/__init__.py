"""Nodes that fail: when, what their jobs lose, and the spares that take their place."""
