"""Receive the progress of long work: the library reports it here instead of printing it."""

from __future__ import annotations


class Progress:
    """Receives the steps of long-running work. This class ignores them; subclasses display them."""

    def stage(self, what: str, total: int | None = None) -> None:
        """Begin a step.

        Parameters
        ----------
        what : str
            Description of the step, such as 'reading cluster_job_log'.
        total : int, optional
            Size of the step in the unit of `advance`, or None if unknown.
        """

    def advance(self, amount: int) -> None:
        """Add `amount` to the completed part of the step."""

    def note(self, text: str) -> None:
        """Report a choice or a finding to the user in one sentence."""

    def fault(self, text: str, traceback: str) -> None:  # noqa: ARG002 -- a display for developers shows the traceback
        """Report a part that failed, by default as a note.

        Parameters
        ----------
        text : str
            One sentence that names the part and says why it could not be made.
        traceback : str
            The error's traceback, in many lines.
        """
        self.note(text)

    def close(self) -> None:
        """End the display."""
