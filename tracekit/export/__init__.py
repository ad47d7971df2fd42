"""Export Traces as input files for simulators, with one module per target in `tracekit.export.targets`.

You can call the package itself: `tracekit.export(trace, "gavel", "philly.trace")` (see `tracekit.export.api.export`).
"""

from __future__ import annotations

from tracekit.callable_package import make_callable

make_callable(__name__, "tracekit.export.api")
