"""Find out who is allocated GPU-hours, how many are used, idle or lost, and what they cost."""
