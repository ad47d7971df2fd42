"""Pages for a job, a node and a user, and the search for them."""

from __future__ import annotations
