"""The targets. Each module lists its targets in MEMBERS; modules whose names begin with _ are shared parts."""
