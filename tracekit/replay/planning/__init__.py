"""Planners: policies that consider all jobs at once."""
