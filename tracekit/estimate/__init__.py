"""What a command will need - rows, bytes, memory, disk - told before it begins, from sizes that are known by then."""
