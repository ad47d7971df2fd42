"""Backfilling: reservations for waiting jobs, and which jobs may start before them."""
