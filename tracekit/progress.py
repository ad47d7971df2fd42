"""What long work tells about itself; the library reports here and never prints."""

from __future__ import annotations

__all__ = ["Progress"]


class Progress:
    """Receives the steps of long work; this one is silent, a subclass shows them."""

    def stage(self, what: str, total: int | None = None) -> None:
        """Begin a step.

        Parameters
        ----------
        what : str
            What is being done, such as 'reading cluster_job_log'.
        total : int, optional
            How much there is to do in the unit that `advance` counts; unknown by default.
        """

    def advance(self, amount: int) -> None:
        """Say that `amount` more of the step is done."""

    def note(self, text: str) -> None:
        """Tell a choice or a finding that the user should see, one sentence."""

    def close(self) -> None:
        """End the display."""
