"""Limit analyses to a few questions, for tests that do not need the others."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from unittest import mock

from tracekit.characterize import find_query
from tracekit.guidelines.interface import GUIDELINES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["asking"]


@contextlib.contextmanager
def asking(*names: str, guidelines: Collection[str] | None = None) -> Iterator[None]:
    """Limit analyses to these queries and guidelines, and leave the script bundle out of their pages.

    By default all guidelines are judged.
    """
    judged = {name: found for name, found in GUIDELINES.all().items() if guidelines is None or name in guidelines}
    few = [find_query(name) for name in names]
    with (
        mock.patch("tracekit.characterize.list_queries", return_value=few),
        mock.patch.object(GUIDELINES, "all", return_value=judged),
        mock.patch("tracekit.report.page.vega_bundle", return_value="/* bundle */"),
    ):
        yield
