"""A week of a cluster on one page for its operator, and on a short one for each user or account.

weeks: ISO weeks of the log's time zone. figures: what happened in each. use: how much of the GPU time was used.
changes: what differs from the weeks before. document: all of it as one structure. view: that in words. pages: HTML and
Markdown. names: files that any name can have. make: the call.
"""

from __future__ import annotations
