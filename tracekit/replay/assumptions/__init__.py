"""What no trace tells: speeds, interference, memory, power, overheads, with their sources."""
