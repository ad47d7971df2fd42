"""Compare the grades and effects that `tracekit calibrate` reports with the truth of simulated sites.

    python tools/effect_scores.py [--seeds 20] [--kinds 'jobs per user' preemption]

Each kind of site in tests/worlds/kinds.py is simulated once per seed, by a simulator that shares nothing with the
replay engine. tracekit reads the logs, finds the rules and reports effects on the mean wait of other orders and of more
nodes. The same jobs are then simulated under the changed rules.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.worlds.effects import judged_site  # noqa: E402 -- found through the line above
from tests.worlds.kinds import KNOWN, OUTSIDE  # noqa: E402 -- found through the path set above


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="sites of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kinds", nargs="*", default=[*KNOWN, *OUTSIDE], choices=[*KNOWN, *OUTSIDE])
    parser.add_argument("--each", action="store_true", help="also print each part and each effect")
    options = parser.parse_args()
    print("| kind | usable | close | fair | rough | poor | inside | wrong sign | interval / recorded wait |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in options.kinds:
        grades, effects = [], []
        for seed in range(options.first, options.first + options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                parts = judged_site(kind, seed, Path(folder))
            for part in parts if options.each else ():
                print(f"{kind} {seed} {part.part}: {part.grade}, {part.share:.0%} of the waiting; {part.rules}")
                for one in part.effects:
                    mark = "" if one.inside else " OUTSIDE"
                    print(
                        f"    {one.change}: {one.recorded_s:.0f} -> {one.changed_s:.0f} s ({one.low_s:.0f} to "
                        f"{one.high_s:.0f}); true {one.true_s:.0f}{mark}{' WRONG SIGN' * one.wrong_sign}"
                    )
            # A log counts with the part that waits most.
            grades.append(max(parts, key=lambda part: part.share).grade)
            effects += [one for part in parts for one in part.effects]
        usable = sum(grade in {"close", "fair"} for grade in grades)
        counts = " | ".join(str(grades.count(grade)) for grade in ("close", "fair", "rough", "poor"))
        inside, wrong = sum(one.inside for one in effects), sum(one.wrong_sign for one in effects)
        widths = [(one.high_s - one.low_s) / one.recorded_s for one in effects if one.recorded_s >= 1]
        width = f"{np.median(widths):.0%}" if widths else ""
        print(
            f"| {kind} | {usable} of {len(grades)} | {counts} | {inside} of {len(effects)} | {wrong} | {width} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
