"""Compare the replay engine with a plain C program.

    python benchmarks/replay.py [--jobs 1580000] [--load 0.8 --load 0.95] [--policy fifo ...]
    python benchmarks/replay.py --growth | --queue | --cold | --memory
    python benchmarks/replay.py --trace TRACE [--cluster FILE]

Jobs and cluster come from `replay_jobs` (shaped like Helios: 6,000 GPUs in 60 isolated virtual clusters). The bound,
`replay_bound.c`, runs FIFO and SRTF by the same rules and must give the same end for every job. It is built with gcc
-O3, and omitted if there is no compiler. A time is the fastest of three runs of the engine's loop, without the setup of
its arrays, or the first run if it took over 10 s. The 'all' column includes the setup.

--growth shows jobs per second from 10,000 to 1.6 million jobs, --queue shows them by queue length, --cold shows how
long the first replay of a process takes, and --memory shows the memory that a process needs beyond the job table.
--trace uses the jobs of a Trace instead, such as the Philly list.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from replay_jobs import make

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

POLICIES = (
    *("fifo", "fifo,scan=skip", "sjf", "ssf", "qssf", "srtf", "srsf", "las", "gittins", "easy", "conservative"),
    *("fair-share", "drf", "kueue", "philly", "hived", "sjf-ffs", "sjf-bsbf", "gavel", "elastic-fifo", "pollux-lite"),
)
_LONG_S = 10
_QUEUE_JOBS = 300_000

BOUND = {"fifo": "fifo", "srtf": "srtf"}
"""Policies that the C program implements."""

MEMORY = """
import resource, sys
sys.path.insert(0, {folder!r})
from replay_jobs import make
from tracekit.replay.scenario import Scenario
scenario = Scenario.make(*make({jobs}, {load}))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
scenario.run({policy!r})
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""

START = """
import sys, time
sys.path.insert(0, {folder!r})
from replay_jobs import make
from tracekit.replay.scenario import Scenario
scenario = Scenario.make(*make(2000, 0.5))
for _ in range({replays}):
    begun = time.perf_counter()
    scenario.run({policy!r})
    seconds = time.perf_counter() - begun
print(seconds)
"""


def build_bound(folder: Path) -> Path | None:
    """Compile the C program, or print that there is no compiler."""
    compiler = shutil.which("gcc")
    if compiler is None:
        print("no gcc here: without the bound")
        return None
    program = folder / "bound"
    source = Path(__file__).with_name("replay_bound.c")
    subprocess.run([compiler, "-O3", "-march=native", "-o", str(program), str(source)], check=True)
    return program


def write_input(path: Path, jobs: Jobs, cluster: Cluster) -> None:
    """Write the C program's input."""
    head = [len(jobs), cluster.nodes, len(cluster.domains)]
    columns = (head, jobs.submit_ms, jobs.work_ms, jobs.devices, jobs.tenant, cluster.gpus, cluster.domain)
    np.concatenate([np.asarray(column, np.int64) for column in columns]).tofile(path)


def run_bound(program: Path, folder: Path, name: str) -> tuple[float, NDArray[np.int64]]:
    """Run the C program, and return its seconds and the end times of jobs."""
    arguments = [str(program), str(folder / "in"), str(folder / "out"), name]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    return float(done.stdout), np.fromfile(folder / "out", np.int64)


def run_engine(scenario: Any, text: str) -> tuple[float, float, Any]:
    """Run a policy, and return the seconds of the loop, the seconds including the setup, and the outcome."""
    from tracekit.replay.engine.run import simulate
    from tracekit.replay.registry import named_policy

    begun = time.perf_counter()
    mechanism = named_policy(text).mechanism(scenario.jobs, scenario.cluster, scenario.models, scenario.seed)
    outcome = simulate(scenario.jobs, scenario.cluster, scenario.assignment, mechanism, name=text)
    return outcome.wall_s, time.perf_counter() - begun, outcome


def best_of_three(scenario: Any, text: str) -> tuple[float, float, Any]:
    """Return the fastest of three runs, or the first if it took over 10 s."""
    best = run_engine(scenario, text)
    for _ in range(2 if best[0] <= _LONG_S else 0):
        best = min(best, run_engine(scenario, text), key=lambda run: run[0])
    return best


def compare(count: int, load: float, policies: tuple[str, ...], program: Path | None, folder: Path) -> None:
    """Print one row per policy."""
    from tracekit.replay.scenario import Scenario

    jobs, cluster = make(count, load)
    scenario = Scenario.make(jobs, cluster)
    fifo_s = None
    if program is not None:
        write_input(folder / "in", jobs, cluster)
        fifo_s = min(run_bound(program, folder, "fifo")[0] for _ in range(3))
    print(f"\n{count:,} jobs, load {load}; FIFO in C: {fifo_s or 0:.3f} s")
    print(f"{'policy':<18}{'engine s':>9}{'all s':>8}{'jobs/s':>12}{'C s':>8}{'ratio':>7}{'of C fifo':>10}  same")
    for text in policies:
        engine_s, all_s, outcome = best_of_three(scenario, text)
        c_s = ratio = same = None
        if program is not None and text in BOUND:
            c_runs = [run_bound(program, folder, BOUND[text]) for _ in range(3)]
            c_s = min(seconds for seconds, _ in c_runs)
            ratio, same = engine_s / c_s, bool((c_runs[0][1] == outcome.end_ms).all())
        print(
            f"{text:<18}{engine_s:>9.3f}{all_s:>8.2f}{count / engine_s:>12,.0f}"
            f"{_figure(c_s, 3):>8}{_figure(ratio, 2):>7}"
            f"{_figure(engine_s / fifo_s if fifo_s else None, 1):>10}  {'' if same is None else same}"
        )


def of_trace(folder: str, cluster: str | None, policies: tuple[str, ...]) -> None:
    """Print one row per policy on the jobs of a Trace."""
    from tracekit.replay.api import scenario_of

    scenario = scenario_of(folder, cluster=cluster)
    count = len(scenario.jobs)
    print(f"\n{count:,} jobs of {Path(folder).name}\n{'policy':<18}{'engine s':>9}{'all s':>8}{'jobs/s':>12}")
    for text in policies:
        engine_s, all_s, _ = best_of_three(scenario, text)
        print(f"{text:<18}{engine_s:>9.3f}{all_s:>8.2f}{count / engine_s:>12,.0f}")


def outages(count: int, load: float, policies: tuple[str, ...], number: int) -> None:
    """Print how much slower a replay with the given number of node outages is than a replay without outages."""
    from tracekit.replay.outages.asked import read_checkpoints
    from tracekit.replay.outages.away import with_outages
    from tracekit.replay.outages.failures import drawn_at_rate
    from tracekit.replay.scenario import Scenario

    jobs, cluster = make(count, load)
    plain = Scenario.make(jobs, cluster)
    end_ms = int(jobs.arrival_ms.max())
    rate = number / (cluster.nodes * end_ms / 86_400_000)
    happened = drawn_at_rate(rate, 4.0, cluster, end_ms, np.random.default_rng(1))
    failing = replace(Scenario.make(jobs, with_outages(cluster, happened)), outages=happened)
    failing = replace(failing, saving=read_checkpoints("interval=3600,cost=60,restart=300"))
    print(f"\n{count:,} jobs, load {load}, {len(happened.node):,} outages")
    print(f"{'policy':<18}{'without s':>10}{'with s':>8}{'ratio':>7}{'restarts':>10}")
    for text in policies:
        runs = [(plain.run(text), failing.run(text)) for _ in range(3)]
        without_s = min(one.outcome.wall_s for one, _ in runs)
        with_s = min(other.outcome.wall_s for _, other in runs)
        restarts = runs[0][1].summary["restarts"]
        print(f"{text:<18}{without_s:>10.3f}{with_s:>8.3f}{with_s / without_s:>7.2f}{restarts:>10,}")


def queue(policies: tuple[str, ...]) -> None:
    """Print jobs per second by length of the longest queue, which grows with the offered load."""
    from tracekit.replay.scenario import Scenario

    loads = (0.8, 1.0, 1.2, 2.0)
    scenarios = [Scenario.make(*make(_QUEUE_JOBS, load)) for load in loads]
    print(f"\njobs/s (longest queue) of {_QUEUE_JOBS:,} jobs by load")
    print(f"{'policy':<18}" + "".join(f"{load:>22}" for load in loads))
    for text in policies:
        cells = []
        for scenario in scenarios:
            seconds, _, outcome = best_of_three(scenario, text)
            cells.append(f"{_QUEUE_JOBS / seconds:,.0f} ({outcome.timeline.pending.max():,})")
        print(f"{text:<18}" + "".join(f"{cell:>22}" for cell in cells))


def _figure(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def growth(load: float, policies: tuple[str, ...]) -> None:
    """Print jobs per second by number of jobs."""
    from tracekit.replay.scenario import Scenario

    sizes = (10_000, 100_000, 400_000, 1_600_000)
    print(f"\njobs/s by number of jobs, load {load}")
    print(f"{'policy':<18}" + "".join(f"{size:>12,}" for size in sizes))
    scenarios = [Scenario.make(*make(size, load)) for size in sizes]
    for text in policies:
        best = [best_of_three(scenario, text)[0] for scenario in scenarios]
        print(f"{text:<18}" + "".join(f"{size / seconds:>12,.0f}" for size, seconds in zip(sizes, best, strict=True)))


def in_process(code: str, **values: Any) -> float:
    """Run code in a separate Python process, and return the number that it prints."""
    text = code.format(folder=str(Path(__file__).parent), **values)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return float(done.stdout)


def cold(policies: tuple[str, ...]) -> None:
    """Print how long a process's first and third replays take. The difference is the startup time.

    The replay has 2,000 jobs. Its jobs and cluster already exist.
    """
    print(f"\n{'policy':<18}{'first s':>10}{'third s':>10}")
    for text in policies:
        first, third = (in_process(START, policy=text, replays=number) for number in (1, 3))
        print(f"{text:<18}{first:>10.2f}{third:>10.2f}")


def memory(count: int, load: float, policies: tuple[str, ...]) -> None:
    """Print the memory that a process needs beyond the job table."""
    print(f"\n{'policy':<18}{'MiB beyond the jobs':>20}")
    for text in policies:
        print(f"{text:<18}{in_process(MEMORY, jobs=count, load=load, policy=text):>20,.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_580_000)
    parser.add_argument("--load", type=float, action="append")
    parser.add_argument("--policy", action="append")
    parser.add_argument("--trace", metavar="TRACE")
    parser.add_argument("--cluster", metavar="FILE")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--queue", action="store_true")
    parser.add_argument(
        "--outages", type=int, metavar="N", help="compare replays with N node outages and without outages"
    )
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    loads = options.load or [0.8, 0.95]
    policies = tuple(options.policy or POLICIES)
    if options.trace:
        of_trace(options.trace, options.cluster, policies)
    elif options.outages:
        for load in loads:
            outages(options.jobs, load, policies, options.outages)
    elif options.queue:
        queue(policies)
    elif options.cold:
        cold(policies)
    elif options.growth:
        growth(loads[0], policies)
    elif options.memory:
        memory(options.jobs, loads[0], policies)
    else:
        with tempfile.TemporaryDirectory() as name:
            program = build_bound(Path(name))
            for load in loads:
                compare(options.jobs, load, policies, program, Path(name))


if __name__ == "__main__":
    main()
