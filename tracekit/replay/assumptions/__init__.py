"""Values that no trace records (speeds, interference, memory, power, overheads, ...), with their sources."""
