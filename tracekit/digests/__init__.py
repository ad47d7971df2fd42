"""A week of a cluster on one page for its operator, and on a short page for each user or account.

weeks: ISO weeks in the log's time zone, with their figures. document: the digest as one structure, with the changes
from previous weeks. make: the pages, and the call.
"""

from __future__ import annotations
