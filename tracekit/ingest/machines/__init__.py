"""Machine lists and node events that stand beside a scheduler's log, one module a kind of file."""
