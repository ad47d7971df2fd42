"""Analyses that ask a few questions, for tests that are about none of the others."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from unittest import mock

from tracekit.characterize import find_query

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["asking"]


@contextlib.contextmanager
def asking(*names: str) -> Iterator[None]:
    """Let analyses ask these queries alone, and leave the script bundle out of their pages."""
    few = [find_query(name) for name in names]
    with (
        mock.patch("tracekit.characterize.list_queries", return_value=few),
        mock.patch("tracekit.report.page.vega_bundle", return_value="/* bundle */"),
    ):
        yield
