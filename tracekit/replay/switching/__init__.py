"""Nodes that are switched off while nobody needs them, and jobs that wait for an hour of their own."""
