"""Many replays of a file in parallel processes."""
