"""The jobs of a Trace as the replay takes them."""
