"""Reports: `data` builds the content of report.json, `page` renders it as HTML, and `write` writes all files."""

from __future__ import annotations

from tracekit.callable_package import make_callable

# The function `report` is in the parent package because it asks the same questions as the analysis.
make_callable(__name__, "tracekit.analysis.reporting")
