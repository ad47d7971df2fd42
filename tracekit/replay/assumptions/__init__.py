"""Values that no trace records, with their sources: speeds, interference, memory, power, overheads."""
