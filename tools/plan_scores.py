"""Score capacity plans on simulated sites, for the figures in docs/plan.md.

    python tools/plan_scores.py [--seeds 20] [--months 20] [--kinds KIND ...]

Each kind of site in tests/worlds/kinds.py is simulated once per seed, by a simulator that shares nothing with the
replay engine. tracekit reads the logs and plans how many nodes halve the mean wait. The same jobs are then simulated
with more nodes. For further months, a site of six months is simulated, and the plan sees only the first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.capacity_plan.sites import further_months, planned_site  # noqa: E402 -- found through the line above
from tests.worlds.kinds import KNOWN  # noqa: E402 -- found through the path set above

LOADS = (0.7, 0.85)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="sites of each kind")
    parser.add_argument("--months", type=int, default=20, help="sites of several months, for each load")
    parser.add_argument("--kinds", nargs="*", default=list(KNOWN), choices=list(KNOWN))
    options = parser.parse_args()
    if options.seeds:
        print("| sites | with a plan | right within one node | right if quotas stay | +1, +2, +4 nodes inside |")
        print("|---|---|---|---|---|")
    for kind in options.kinds if options.seeds else ():
        found = []
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                found.append(planned_site(kind, seed, Path(folder)))
        plans = [one for one in found if one is not None]
        inside = [held for one in plans for held in one.inside.values()]
        right, fixed = (sum(one.right for one in plans), sum(one.right_if_fixed for one in plans))
        print(f"| {kind} | {len(plans)} | {right} | {fixed} | {sum(inside)} of {len(inside)} |", flush=True)
    for load in LOADS if options.months else ():
        months = [month for seed in range(options.months) for month in further_months(seed, load)]
        mean, tail = (sum(month[k] for month in months) for k in (0, 1))
        print(f"load {load}: of {len(months)} further months, {mean} mean waits and {tail} 90th percentiles are inside")


if __name__ == "__main__":
    main()
