"""Clusters from a Trace, from observed use or from a file, and the nodes that each job may use."""
