"""GPU-hours: who holds them, how many are used, idle or lost, and what they cost."""
