"""Jobs that share whole GPUs, and the speed at which they do."""
