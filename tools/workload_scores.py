"""Write docs/workload_scores.md, which shows how closely generated workloads match the logs they are made from.

python tools/workload_scores.py                  # all logs, without rows for logs missing on this machine
python tools/workload_scores.py --only philly    # print the tables of one log and write nothing

The logs are the sample traces, and released data next to the repository (../shared/data, or --data FOLDER). The
released data are the Philly jobs of autumn 2017, the pods of Alibaba's GPU-sharing cluster, and the submissions per ten
minutes on Helios' Venus.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from threadpoolctl import threadpool_limits  # noqa: E402 -- found through the line above

from tracekit import ingest_logs  # noqa: E402 -- found through the path set above
from tracekit.fit.api import fit_model  # noqa: E402 -- found through the path set above
from tracekit.fit.choice import Effort  # noqa: E402 -- found through the path set above
from tracekit.fit.generate import generate  # noqa: E402 -- found through the path set above
from tracekit.fit.log_jobs import DAY_US, jobs_by_day  # noqa: E402 -- found through the path set above
from tracekit.fit.model import WORKLOADS  # noqa: E402 -- found through the path set above
from tracekit.fit.scores.parts import ROWS, figures_of, utc_us, write_part  # noqa: E402 -- found through the path set above  # noqa: E402 -- found through the path set above
from tracekit.fit.scores.table import (  # noqa: E402 -- found through the path set above
    BASELINES,
    GENERATORS,
    POLICIES,
    Machines,
    machines_for,
    score,
    waits,
)
from tracekit.progress import Progress  # noqa: E402 -- found through the path set above
from tracekit.text import counted  # noqa: E402 -- found through the path set above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.trace import Trace

__all__ = ["Found", "logs", "page"]

PAGE = ROOT / "docs" / "workload_scores.md"
_SEEDS = 5
_DRAWS = 20
"""Number of workloads per generator whose waits are compared with the log's over all its days."""
_GPUS_PER_NODE = 8
_SIZES = {"philly jobs of 2017": (60, 80, 100)}
"""Numbers of 8-GPU nodes on which a log is replayed, in addition to the machines used for the scores."""


@dataclass
class Found:
    """The results for one log."""

    name: str
    scores: dict[str, Any]
    best: str | None = None
    """The default generator."""
    waits: list[tuple[str, dict[str, float], dict[str, list[dict[str, float]]], list[dict[str, float]]]] = field(
        default_factory=list
    )
    """For each set of machines, its description and three sets of waits [s]: the log's by row, those of each
    generator's draws, and those of the log's thirds.
    """


def logs(folder: Path, data: Path) -> dict[str, Callable[[], Trace]]:
    """Return the functions that ingest the available logs, by name."""
    philly, openb = data / "philly" / "philly_jobs_2017-09_10.csv.gz", data / "alibaba_openb"
    venus = data / "helios" / "venus_counts_2020-04_07.csv.gz"
    mapping = {"map": str(ROOT / "docs" / "mapping" / "philly_jobs.toml")}
    found: dict[str, Callable[[], Trace]] = {}
    if philly.exists():
        found["philly jobs of 2017"] = lambda: ingest_logs(
            philly, folder / "philly-2017", format_name="csv", options=mapping
        )
    if openb.exists():
        found["openb pods"] = lambda: ingest_logs(openb, folder / "openb")
    if venus.exists():
        found["venus, submissions"] = lambda: _counts(venus, folder)
    for sample in sorted(p.name for p in (ROOT / "sample_traces").iterdir() if p.is_dir() and p.name[0] not in "_."):
        if sample != "slurm-dumps":  # one simulation in eight forms
            found[f"sample {sample}"] = partial(
                ingest_logs, ROOT / "sample_traces" / sample, folder / f"sample-{sample}"
            )
    return found


def _counts(path: Path, folder: Path) -> Trace:
    """Return a Trace with only submissions, each at the start of its ten minutes."""
    counts = pl.read_csv(path, try_parse_dates=True).select("time", "submit_job_all")
    jobs = counts.select(pl.col("time").repeat_by("submit_job_all").explode()).drop_nulls()
    table = folder / "venus.csv"
    jobs.with_row_index("id").select("id", "time").write_csv(table, datetime_format="%Y-%m-%d %H:%M:%S")
    mapping = folder / "venus.toml"
    mapping.write_text(
        '[source]\ntimezone = "Asia/Shanghai"\ntime_format = "%Y-%m-%d %H:%M:%S"\n'
        '[jobs.columns]\njob_id = "id"\nsubmit_time = "time"\n',
        encoding="utf-8",
    )
    return ingest_logs(table, folder / "venus", format_name="csv", options={"map": str(mapping)})


def found_of(name: str, trace: Trace, folder: Path) -> Found:
    """Score a log's generators, and compare waits over all its days."""
    scores = score(trace, _SEEDS, Progress())
    best = scores["best"] if scores["best"] != "hybrid" else f"hybrid_{scores['hybrid']}"
    found = Found(name, scores, best)
    if scores["reason"] is None and any(row["row"].startswith("wait") for row in scores["rows"]):
        found.waits = list(_waits(name, trace, folder))
    return found


def _waits(
    name: str, trace: Trace, folder: Path
) -> Iterator[tuple[str, dict[str, float], dict[str, list[dict[str, float]]], list[dict[str, float]]]]:
    begin_us, jobs = jobs_by_day(trace)
    days = int(jobs.size)
    edges = [utc_us(begin_us + day * DAY_US, trace.timezone) for day in (0, days // 3, 2 * days // 3, days)]
    home = folder / f"waits of {name}"
    home.mkdir()
    whole = write_part(trace, edges[0], edges[-1], home / "whole")
    thirds = [write_part(trace, a, b, home / f"part{a}") for a, b in pairwise(edges)]
    machines, _ = machines_for(whole, figures_of(whole, days), days, home)
    used = [machines]
    for nodes in _SIZES.get(name, ()):
        file = home / f"{nodes}.toml"
        file.write_text(f'[[pool]]\nname = "all"\nnodes = {nodes}\ngpus_per_node = {_GPUS_PER_NODE}\n')
        used.append(Machines(file, machines.cluster, f"{nodes} nodes of 8 GPUs"))
    model = fit_model(trace, effort=Effort(replicates=0, drawn_only=True))
    drawn: dict[str, list[list[dict[str, float]]]] = {}
    for generator in GENERATORS:
        method, _, half = generator.partition("_")
        drawn[generator] = []
        for seed in range(_DRAWS):
            made = generate(
                trace, home / "drawn", days=days, seed=seed, method=method, hybrid=half or None, model=model, force=True
            )
            drawn[generator].append([waits(made, each) for each in used])
    for i, each in enumerate(used):
        runs = {generator: [run[i] for run in mine] for generator, mine in drawn.items()}
        yield each.words, waits(whole, each), runs, [waits(third, each) for third in thirds]


_HEAD = """# How near generated workloads come

This page compares the workloads that `tracekit generate` makes with the logs they come from;
[Fitted workloads](workload.md) explains the methods. `python tools/workload_scores.py` rewrites this page. The logs are
all sample traces, which are small and synthetic, and three real logs: 52,849 Philly jobs of autumn 2017, the default
list of Alibaba's GPU-sharing cluster (openb), and the submissions per ten minutes of Helios' Venus from April to July
2020, for which only arrivals are known.
"""
_HELD = """
## Judged on the last part of the log

Each generator learns from the first 70 % of the days, generates the remaining days with five seeds, and is compared
with them. The table shows its **mean rank** among six workloads over up to 16 figures; rank 1 is closest to the log.
There are two naive workloads: single jobs of the log with Poisson arrivals at its mean rate, and the same with run
times
from one lognormal distribution. The best rank is bold. The method that `tracekit generate TRACE --model workload.json`
chooses is in italics: the best of the four generators or, within half a rank of it, the first of resample, hybrid and
model.
"""
_FIGURES = """
## Figure by figure

Values are medians over five seeds. The brackets show the distance from the held-out part: the difference for
autocorrelations, and the natural logarithm of the ratio for other figures (0.41 is a factor of 1.5). Values without
brackets are themselves distances between two distributions. Waits [s] are at the load of the held-out part. Earlier
blocks of the log, as long as the held-out part, show how much the log varies.
"""
_WAITS = """
## Waits over the whole log

Each generator makes as many days as the log has, with 20 seeds, and the jobs are replayed on one cluster. The table
shows the **mean wait divided by that of the log's own jobs**: the median of 20 draws, with the smallest and the largest
value. Nothing is scaled. Medians within a factor of 1.5 are bold. The last column shows the mean waits of the three
thirds of the log, each replayed separately on these machines, divided by the mean wait of the whole log. Rows in which
the log's own jobs wait less than a minute are omitted. This is an in-sample comparison: resampled days consist of the
same jobs with which they are compared. So it shows whether waits are preserved, not whether the future is predicted;
for
that, see the first table.
"""


def page(found: list[Found]) -> str:
    """Return the page."""
    names = (*GENERATORS, *BASELINES)
    parts = [_HEAD, _HELD]
    parts += [f"| log | learned from | judged on | {' | '.join(WORKLOADS[n] for n in names)} |"]
    parts += ["|---|---|---|" + "---|" * len(names)]
    parts += [_rank_line(one, names) for one in found if one.scores["reason"] is None]
    left_out = [f"{one.name} ({one.scores['reason']})" for one in found if one.scores["reason"] is not None]
    if left_out:
        parts += ["\nNot scored: " + "; ".join(left_out) + "."]
    parts += [_FIGURES]
    for one in found:
        if one.scores["reason"] is None and not one.name.startswith("sample"):
            on = one.scores["machines"]
            parts += [f"### {one.name}\n", *([f"Waits on {on}.\n"] if on else []), *_figure_table(one, names), ""]
    parts += [_WAITS]
    parts += [
        f"| log, machines | policy | log [h] | {' | '.join(WORKLOADS[n] for n in GENERATORS)} | thirds of the log |"
    ]
    parts += ["|---|---|---|" + "---|" * (len(GENERATORS) + 1)]
    parts += [line for one in found for line in _wait_lines(one)]
    return "\n".join(parts) + "\n"


def _rank_line(one: Found, names: tuple[str, ...]) -> str:
    rank = {each["generator"]: each["mean_rank"] for each in one.scores["totals"]}
    least = min(value for value in rank.values() if value is not None)

    def cell(name: str) -> str:
        value = rank.get(name)
        if value is None:
            return "-"
        text = f"**{value:.2f}**" if value == least else f"{value:.2f}"
        return f"*{text}*" if name == one.best else text

    parts = [f"{part['jobs']:,} jobs, {counted(part['days'], 'days')}" for part in _parts(one)]
    return f"| {one.name} | {parts[0]} | {parts[1]} | {' | '.join(cell(name) for name in names)} |"


def _parts(one: Found) -> tuple[dict[str, int], dict[str, int]]:
    return one.scores["learned"], one.scores["held_out"]


def _figure_table(one: Found, names: tuple[str, ...]) -> Iterator[str]:
    yield f"| figure | log | {' | '.join(WORKLOADS[n] for n in names)} | earlier blocks |"
    yield "|---|---|" + "---|" * (len(names) + 1)
    rows = {row["row"]: row for row in one.scores["rows"]}
    for name in ROWS:
        if name not in rows:
            continue
        row = rows[name]
        own = "" if row["held_out"] is None else f"{row['held_out']:,.4g}"
        entries = {each["generator"]: each for each in row["generators"]}
        cells = [_cell(name, entries.get(n)) for n in names]
        yield f"| {name} | {own} | {' | '.join(cells)} | {_cell(name, row['log_blocks'])} |"


def _cell(row: str, entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "-"
    if ROWS[row] == "distance":
        return f"{entry['value']:.2f}"
    return f"{entry['value']:,.4g} ({entry['distance']:.2f})"


def _wait_lines(one: Found) -> Iterator[str]:
    for words, log, drawn, thirds in one.waits:
        for policy in POLICIES:
            row = f"wait_{policy}_mean_s"
            own = log.get(row, 0.0)
            if own < 60:
                continue
            cells = [_ratio(one, name, [run[row] / own for run in runs if row in run]) for name, runs in drawn.items()]
            parts = ", ".join(f"{third[row] / own:.2f}" for third in thirds if row in third)
            yield f"| {one.name}, {words} | {policy} | {own / 3600:,.2f} | {' | '.join(cells)} | {parts} |"


def _ratio(one: Found, name: str, ratios: list[float]) -> str:
    if not ratios:
        return "-"
    middle = float(np.median(ratios))
    text = f"**{middle:.2f}**" if 1 / 1.5 <= middle <= 1.5 else f"{middle:.2f}"
    return f"{text} ({min(ratios):.2f} to {max(ratios):.2f}){', default' if name == one.best else ''}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="NAME", help="print the tables of logs whose names contain this")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of released data")
    chosen = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as name, threadpool_limits(limits=1, user_api="blas"):
        folder = Path(name)
        for log, ingest in logs(folder, chosen.data).items():
            if chosen.only is None or chosen.only in log:
                print(log, file=sys.stderr, flush=True)
                found.append(found_of(log, ingest(), folder))
    text = page(found)
    if chosen.only is None:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
