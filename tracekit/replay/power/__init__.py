"""GPU power: a cap on it, and idle nodes that are switched off."""
