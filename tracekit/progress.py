"""Progress of long work; the library reports it here and never prints."""

from __future__ import annotations


class Progress:
    """Receives the steps of long work; this class ignores them, a subclass displays them."""

    def stage(self, what: str, total: int | None = None) -> None:
        """Begin a step.

        Parameters
        ----------
        what : str
            What is being done, such as 'reading cluster_job_log'.
        total : int, optional
            Size of the step in the unit of `advance`; unknown by default.
        """

    def advance(self, amount: int) -> None:
        """Add `amount` to what is done of the step."""

    def note(self, text: str) -> None:
        """Report a choice or a finding to the user, one sentence."""

    def fault(self, text: str, traceback: str) -> None:  # noqa: ARG002 -- a display of developers shows the second
        """Report a part that could not be made; it is a note by default.

        Parameters
        ----------
        text : str
            What could not be made and why, one sentence.
        traceback : str
            Where the error came from, of many lines.
        """
        self.note(text)

    def close(self) -> None:
        """End the display."""
