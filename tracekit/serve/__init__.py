"""A live report: one process on this machine reads the Trace and answers the page's requests."""

from __future__ import annotations
