"""Export Traces as input files for simulators, with one module per target in `tracekit.export.targets`.

The package can be called: `tracekit.export(trace, "gavel", "philly.trace")` (see `tracekit.export.api.export`).
"""

from __future__ import annotations

from tracekit.callable_package import make_callable

make_callable(__name__, "tracekit.export.api")
