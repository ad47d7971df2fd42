"""The twin of a cluster: the replay that best reproduces what its log recorded."""
