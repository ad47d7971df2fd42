"""The twin of a cluster: the replay that best reproduces its log."""
