"""Jobs that share whole GPUs, and their speed."""
