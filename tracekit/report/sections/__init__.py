"""The sections of a report: for each question, what its numbers say and how they are drawn.

Each module covers a group of questions, with a sentence and a chart for each (see `interface.Presentation`). A question
without an entry here still has its table in the report.
"""

from __future__ import annotations
