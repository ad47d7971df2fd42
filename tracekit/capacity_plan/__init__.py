"""Capacity planning: how waits depend on capacity, load and policy, according to the twin of a cluster."""
