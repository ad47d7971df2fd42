"""GPU power: power caps, and idle nodes that are switched off."""
