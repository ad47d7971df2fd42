"""The exception for missing parts of a Trace, which guidelines and their evidence share."""

from __future__ import annotations


class LackingError(Exception):
    """The Trace lacks what a guideline needs; raised by its function and caught by the runner."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = sentences
        super().__init__(" ".join(sentences))
