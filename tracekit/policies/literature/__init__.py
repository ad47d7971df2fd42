"""Policies from the literature that operators rarely need."""
