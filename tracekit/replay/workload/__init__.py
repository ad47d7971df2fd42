"""Read the jobs of a Trace for a replay."""
