"""What-if replay: run the jobs of a Trace under another policy, on the same or another cluster.

You can call the package itself: `tracekit.replay(trace, policy="srtf")` (see `tracekit.replay.api.replay`).
"""

from __future__ import annotations

from tracekit.callable_package import make_callable

make_callable(__name__, "tracekit.replay.api")
