"""The targets. Each module lists its targets in MEMBERS. Modules whose names begin with _ have shared code."""
