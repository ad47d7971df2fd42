"""Planners: policies that look at all jobs at once."""
