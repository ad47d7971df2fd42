"""Read machine lists and node events next to a scheduler's log, with one module per kind of file."""
