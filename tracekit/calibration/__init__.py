"""A replay that comes as near as it can to what the log recorded: the twin of a cluster."""
