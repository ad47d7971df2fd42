"""A cap on the power of the GPUs."""
