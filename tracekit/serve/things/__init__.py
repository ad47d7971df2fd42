"""What can be opened: a job, a node, a user, and the search for them."""

from __future__ import annotations
