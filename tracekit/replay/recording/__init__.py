"""The recorded schedule, carried out again."""
