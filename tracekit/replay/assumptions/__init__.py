"""Values that no trace records, such as speeds, interference, memory, power and overheads, with their sources."""
