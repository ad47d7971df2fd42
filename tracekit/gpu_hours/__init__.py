"""Find out who gets GPU-hours, how many are used, idle or lost, and what they cost."""
