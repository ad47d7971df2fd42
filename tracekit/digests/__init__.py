"""A week of a cluster on one page for its operator, and on a short one for each user or account.

weeks: ISO weeks of the log's time zone, and what happened in each. document: all of it as one structure, with what
differs from the weeks before. make: the pages, and the call.
"""

from __future__ import annotations
