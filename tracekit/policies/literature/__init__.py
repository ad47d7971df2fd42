"""Policies of the literature, beyond what an operator's run uses."""
