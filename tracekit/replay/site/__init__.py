"""Scheduling by the rules of a site: partitions, limits, CPUs and memory."""
