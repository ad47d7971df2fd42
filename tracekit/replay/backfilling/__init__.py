"""Backfilling: reservations for waiting jobs, and the jobs that may start before them."""
