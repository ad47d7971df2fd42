"""What-if replay: the jobs of a Trace under another policy, on this or another cluster.

The package can be called: `tracekit.replay(trace, policy="srtf")` (see `tracekit.replay.api.replay`).
"""

from __future__ import annotations

from tracekit.callable_package import make_callable

make_callable(__name__, "tracekit.replay.api")
