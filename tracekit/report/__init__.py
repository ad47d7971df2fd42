"""Reports: `data` builds the structure that is report.json, `page` draws the page from it, `write` writes all files."""

from __future__ import annotations

from tracekit.callable_package import make_callable

# The function is a step above what this package draws: it asks what the analysis asks.
make_callable(__name__, "tracekit.analysis.reporting")
