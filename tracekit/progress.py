"""Receive the progress of long work; the library reports it here and never prints."""

from __future__ import annotations


class Progress:
    """Receives the steps of long work; this class ignores them, and subclasses display them."""

    def stage(self, what: str, total: int | None = None) -> None:
        """Begin a step.

        Parameters
        ----------
        what : str
            Description of the step, such as 'reading cluster_job_log'.
        total : int, optional
            Size of the step in the unit of `advance`; by default unknown.
        """

    def advance(self, amount: int) -> None:
        """Add `amount` to the completed part of the step."""

    def note(self, text: str) -> None:
        """Report a choice or a finding to the user in one sentence."""

    def fault(self, text: str, traceback: str) -> None:  # noqa: ARG002 -- a display for developers shows the traceback
        """Report a part that could not be made; by default, as a note.

        Parameters
        ----------
        text : str
            One sentence on the part that could not be made, and why.
        traceback : str
            Traceback of the error, with many lines.
        """
        self.note(text)

    def close(self) -> None:
        """End the display."""
