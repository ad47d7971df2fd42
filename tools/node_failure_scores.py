"""Write the table of docs/workload.md that compares failures of nodes as foretold with those that came.

    python tools/node_failure_scores.py [--data FOLDER]

The log is the release of InfiniteHBD beside the repository (../shared/data/infinitehbd, or --data FOLDER). Without it
nothing is written.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from threadpoolctl import threadpool_limits  # noqa: E402 -- found through the line above

from tracekit import ingest_logs  # noqa: E402 -- the same
from tracekit.fit.node_outlook import FIGURES, held_out_failures  # noqa: E402 -- the same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.fit.node_outlook import HeldOut

__all__ = ["SHARES", "table", "within_page"]

PAGE = ROOT / "docs" / "workload.md"
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9)
_BEGIN, _END = "<!-- node failure scores -->\n", "<!-- end of node failure scores -->\n"


def table(found: list[HeldOut]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| learned from | judged on | outages | node-hours away | availability [%] |"
    yield "|---|---|---|---|---|"
    for one in found:
        cells = [_cell(one, name) for name in FIGURES]
        yield f"| {one.learned_days:.0f} days, {one.failures} failures | {one.days:.0f} days | {' | '.join(cells)} |"


def _cell(one: HeldOut, name: str) -> str:
    figure, came = one.predicted[name], one.came[name]

    def text(value: float) -> str:
        return f"{100 * value:.1f}" if name == "availability_share" else f"{value:,.0f}"

    shown = f"**{text(came)}**" if figure.low <= came <= figure.high else text(came)
    return f"{text(figure.middle)} ({text(figure.low)} to {text(figure.high)}); came {shown}"


def within_page(page: str, lines: list[str]) -> str:
    """Return the page with the table between its marks."""
    head, _, rest = page.partition(_BEGIN)
    return head + _BEGIN + "\n" + "\n".join(lines) + "\n\n" + _END + rest.partition(_END)[2]


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "infinitehbd")
    given = parser.parse_args()
    if not given.data.is_dir():
        sys.exit(f"{given.data}: not there")
    with tempfile.TemporaryDirectory() as name, threadpool_limits(limits=1, user_api="blas"):
        trace = ingest_logs(given.data, Path(name) / "trace")
        lines = list(table([held_out_failures(trace, share) for share in SHARES]))
    PAGE.write_text(within_page(PAGE.read_text(encoding="utf-8"), lines), encoding="utf-8")


if __name__ == "__main__":
    main()
