"""Clusters built from a Trace, observed use or a file, and the nodes that each job may use."""
