"""A report that a Trace stands behind: one process, on this machine, which answers what the page asks."""

from __future__ import annotations
