"""Tenants: quotas, shares, borrowing and reclaiming."""
