"""How many GPUs: waits against capacity, load and policy, by the twin of a cluster."""
