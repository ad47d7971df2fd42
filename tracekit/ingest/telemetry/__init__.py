"""Read GPU and host samples next to a scheduler's log, with one module per kind of file."""
