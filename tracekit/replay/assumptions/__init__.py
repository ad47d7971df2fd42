"""What traces do not record: speeds, interference, memory, power, overheads, with their sources."""
