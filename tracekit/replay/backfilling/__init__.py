"""Backfilling: reservations for waiting jobs, and who may start before them."""
