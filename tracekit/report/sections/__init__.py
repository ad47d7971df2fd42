"""The sections of a report: a sentence and charts for the answer to each question.

Each module covers a group of questions and provides a sentence and charts for each (see `interface.Presentation`). A
question without an entry here still has its table in the report.
"""

from __future__ import annotations
