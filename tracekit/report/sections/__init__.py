"""The sections of a report: a sentence and charts for the answer to each question.

Each module covers a group of questions and provides a sentence and charts for each question (see
`interface.Presentation`). The report shows only a table for a question without an entry here.
"""

from __future__ import annotations
