"""Parts of GPUs: placement on nodes with CPUs and memory, and the studies of fragmentation."""
