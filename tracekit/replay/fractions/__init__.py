"""GPUs shared in fractions: placement on nodes with CPUs and memory, and the fragmentation studies."""
