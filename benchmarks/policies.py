"""Measure the replay of a trace under every policy, each in a separate process.

    python benchmarks/policies.py TRACE [--cluster FILE.toml] [--load X] [-p POLICY ...]

For each policy, the table shows the engine's seconds and jobs per second, and the whole command's wall time and peak
memory. Policies for which the trace has no inputs are listed at the end with the reason.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from _process import run

from tracekit.errors import TracekitError
from tracekit.replay.panels import all_of_the_literature
from tracekit.replay.registry import named_policy

LIMIT_S, LIMIT_MIB = 120.0, 2048.0


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--cluster", type=Path)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("-p", "--policy", action="append")
    chosen = parser.parse_args()
    given = ["--load", str(chosen.load), *(["--cluster", str(chosen.cluster)] if chosen.cluster else [])]
    rows, missing = [], []
    with tempfile.TemporaryDirectory() as folder:
        for policy in chosen.policy or all_of_the_literature():
            out = Path(folder) / named_policy(policy).label
            command = ["-m", "tracekit", "replay", str(chosen.trace), *given, "-p", policy, "-o", str(out)]
            try:
                used = run(*command)
            except RuntimeError:
                missing.append(policy)
                continue
            (summary,) = out.rglob("summary.json")
            engine = json.loads(summary.read_text())["engine"]
            rows.append((float(engine["wall_s"]), policy, float(engine["jobs_per_s"]), used))
    print("| policy | engine | jobs a second | whole command | peak memory |")
    print("|---|---|---|---|---|")
    for seconds, policy, speed, used in sorted(rows, reverse=True):
        over = " over the limit" if used.wall_s > LIMIT_S or used.peak_mib > LIMIT_MIB else ""
        print(f"| {policy} | {seconds:.3g} s | {speed:,.0f} | {used.wall_s:.1f} s | {used.peak_mib:,.0f} MiB{over} |")
    whole = sum(used.wall_s for *_, used in rows)
    print(f"\n{whole:.0f} s in all; at most {LIMIT_S:.0f} s and {LIMIT_MIB:,.0f} MiB each")
    for policy in missing:
        print(f"{policy}: {_why(chosen, policy)}")


def _why(chosen: argparse.Namespace, policy: str) -> str:
    """Return why a policy cannot run."""
    from tracekit import replay

    try:
        replay(chosen.trace, policy=policy, cluster=str(chosen.cluster) if chosen.cluster else None, load=chosen.load)
    except TracekitError as error:
        return str(error)
    return "failed, and did not a second time"


if __name__ == "__main__":
    main()
