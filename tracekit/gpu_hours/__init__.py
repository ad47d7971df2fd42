"""GPU-hours: who is allocated them, how many are used, idle or lost, and what they cost."""
