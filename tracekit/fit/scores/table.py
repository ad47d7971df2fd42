"""Score generators of a log. Each generator and naive baseline learns from the first part and is judged on the last.

Each row of the table is one figure of a workload (`parts.ROWS`). A generator's distance in a row is the median, over
seeds, of the distance between its figure and that of the held-out part. In each row, generators and baselines are
ranked, and equal distances share their mean rank. Distances below that of the log's own blocks count as equal to it,
because the parts of a log differ as much. A generator's score is its mean rank over the rows, and the lowest score is
best. If scores differ by half a rank or less, the generator that keeps more of the log is chosen.

Gaps and hourly counts are compared relative to their means. For waits, arrivals are sped up or slowed down until the
GPU-hours per day equal those of the held-out part; otherwise a part with an unusual load would make all generators
equally wrong. The amount of work per day has separate rows. For comparison, the log itself is judged in the same way,
using blocks of its first part that are as long as the held-out part.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.errors import TracekitError, UsageError
from tracekit.fit.api import fit_model
from tracekit.fit.choice import Effort
from tracekit.fit.generate import generate
from tracekit.fit.log_jobs import DAY_US, KEPT, read_log
from tracekit.fit.scores.parts import ROWS, Judged, figures_of, judged, split_of, utc_us, write_jobs, write_part
from tracekit.interruption import temporary_folder
from tracekit.replay.facts import replay_facts
from tracekit.runs.ledger import Ledger
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.fit.model import WorkloadModel
    from tracekit.fit.scores.parts import Figures, Split
    from tracekit.progress import Progress
    from tracekit.trace import Trace


# Replay a workload under three policies, on the same machines and at the same load as all others, to get its waits.

POLICIES = ("fifo", "easy", "srtf")
"""Policies in the wait rows."""
STATED_LOAD = 0.9
"""Requested GPU time / that of the machines, used if the log's own machines are unknown or cause no waits."""
_NOBODY_S = 60.0
"""The 90th percentile of FIFO waits below which too few jobs wait for a comparison [s]."""
_GPUS_PER_NODE = 8


@dataclass(frozen=True)
class Machines:
    """The machines on which the workloads of a table run."""

    file: Path | None
    """Cluster file, or None for the machines in the Trace's tables."""
    cluster: str | None
    """The cluster to use, if there are several."""
    words: str


def waits(trace: Trace, machines: Machines, load: float = 1.0) -> dict[str, float]:
    """Return the mean and 90th percentile of first start minus submission [s] by row, without jobs that never start.

    Jobs arrive `load` times as fast. The result is empty if these jobs cannot be replayed on these machines.
    """
    from tracekit.replay.api import scenario_of

    found: dict[str, float] = {}
    try:
        scenario = scenario_of(
            trace,
            cluster=machines.file,
            cluster_name=machines.cluster,
            partitioned=False,
            node_events=False,
            load=load,
            force=True,
        )
        for policy in POLICIES:
            outcome = scenario.run(policy).outcome
            started = outcome.first_start_ms >= 0
            waited = (outcome.first_start_ms - scenario.jobs.submit_ms)[started] / 1000
            if waited.size:
                found[f"wait_{policy}_mean_s"] = float(waited.mean())
                found[f"wait_{policy}_p90_s"] = float(np.quantile(waited, 0.9))
    except TracekitError:
        return {}
    return found


def machines_for(trace: Trace, figures: Figures, days: int, folder: Path) -> tuple[Machines, dict[str, float]]:
    """Return the machines on which workloads are compared, and the waits of the log's own jobs there.

    The log's own machines are used if they are known and 1 in 10 jobs waits there. Otherwise, the machines are the
    number of 8-GPU nodes that gives the load `STATED_LOAD`.

    Parameters
    ----------
    trace : Trace
        The held-out part of the log.
    figures : Figures
        Figures of that part.
    folder : Path
        Folder for a cluster file.
    """
    from tracekit.replay.part import busiest_cluster

    name = busiest_cluster(trace)
    own = Machines(None, name, "the log's machines" + ("" if name is None else f" of {name}, its busiest cluster"))
    why = "its machines are not known"
    if trace.has("nodes") or trace.has("capacity"):
        found = waits(trace, own)
        if found.get("wait_fifo_p90_s", 0.0) >= _NOBODY_S:
            return own, found
        why = "hardly any job waits on its own machines" if found else "its jobs cannot be replayed on its own machines"
    nodes = max(1, math.ceil(figures.gpu_hours / 24 / days / STATED_LOAD / _GPUS_PER_NODE))
    widest = figures.sizes["gpu_count"].max()
    if isinstance(widest, float):
        nodes = max(nodes, math.ceil(widest / _GPUS_PER_NODE))
    load = figures.gpu_hours / 24 / days / (nodes * _GPUS_PER_NODE)
    file = folder / "machines.toml"
    file.write_text(f'[[pool]]\nname = "all"\nnodes = {nodes}\ngpus_per_node = {_GPUS_PER_NODE}\n', encoding="utf-8")
    stated = Machines(file, name, f"{counted(nodes, 'nodes')} of 8 GPUs with a load of {load:.2f}, because {why}")
    return stated, waits(trace, stated)


# Draw naive workloads as baselines for the generators, with jobs one by one at a constant rate.

BASELINES = ("poisson_jobs", "poisson_lognormal")
"""The log's jobs one by one, with Poisson arrivals at the log's mean rate, and the same with run times from one
lognormal distribution fitted to the run times above 0."""


def draw_baseline(trace: Trace, name: str, days: int, seed: int, out: Path, step_s: float = 1.0) -> Trace:
    """Write a naive workload of a log whose clock has steps of `step_s` [s].

    Raises
    ------
    UsageError
        The log has no usable job.
    """
    log = read_log(trace)
    rng = np.random.default_rng(seed)
    number = max(1, int(rng.poisson(log.per_day * days)))
    place = rng.integers(log.first[0], log.first[-1], size=number)
    at = utc_us(log.begin_us, trace.timezone) + np.sort(rng.random(number) * days * DAY_US).astype(np.int64)
    at -= at % round(step_s * 1_000_000)
    jobs = log.jobs.select(*(name for name in KEPT if name in log.jobs.columns), "run_s")[log.row[place]].with_columns(
        job_id=pl.Series(np.arange(number)).cast(pl.String), submit_time=pl.Series(at).cast(pl.Datetime("us"))
    )
    if name == "poisson_lognormal":
        known = log.jobs["run_s"][log.row].drop_nulls().to_numpy()
        logs = np.log(known[known > 0])
        if logs.size:
            drawn = np.round(np.exp(rng.normal(logs.mean(), logs.std(), size=number)))
            jobs = jobs.with_columns(run_s=pl.Series(np.minimum(drawn, known.max())))
    return write_jobs(trace, jobs, out)


GENERATORS = ("model", "resample", "hybrid_arrivals", "hybrid_jobs")
"""Generators that are scored in addition to `BASELINES`."""
_PREFERRED = ("resample", "hybrid_arrivals", "hybrid_jobs", "model")
"""Order of preference among generators with similar scores. The first keeps the most of the log."""
_ALIKE = 0.5
"""Maximum difference of tied mean ranks; on the Philly jobs of autumn 2017, these vary by 0.3 over seeds."""
_MOST_BLOCKS = 5
"""Maximum number of blocks of the first part used to measure how much the log differs from itself."""


def score(trace: Trace, seeds: int, progress: Progress, *, shared: Ledger | None = None) -> dict[str, Any]:
    """Return the `scores` part of workload.json.

    Parameters
    ----------
    trace : Trace
        The log.
    seeds : int
        Number of workloads drawn per generator, or 0 to score nothing.
    progress : Progress
        Receives progress updates.
    shared : Ledger, optional
        The folder in which shards draw and judge workloads together, or from which they are gathered.

    Raises
    ------
    UnfinishedError
        `shared` only gathers results, but workloads are missing.
    OutputError
        The folder of `shared` cannot be written.
    """
    if not seeds:
        return _unscored("not requested")
    try:
        split = split_of(trace)
    except UsageError as error:
        split = error.what
    if isinstance(split, str):
        return _unscored(split)
    with temporary_folder("scores") as folder:
        try:
            bench = _Bench.prepared(trace, split, folder)
            ledger = (shared or Ledger()).about(**replay_facts("fit scores", trace, "fit", "trace_writer"))
            return bench.scores(seeds, progress, ledger)
        except UsageError as error:
            return _unscored(error.what)


def _unscored(reason: str) -> dict[str, Any]:
    return {"reason": reason, "best": None, "hybrid": None}


@dataclass
class _Bench:
    """The parts of a log, the figures of the held-out part, and the model of the learning part."""

    trace: Trace
    split: Split
    folder: Path
    learned: Trace
    """The learning part."""
    log: Figures
    """Figures of the held-out part."""
    machines: Machines | None
    """The machines, or None if GPUs or run times are unknown."""
    _fitted: WorkloadModel | None = None

    @classmethod
    def prepared(cls, trace: Trace, split: Split, folder: Path) -> _Bench:
        """Write both parts and replay the held-out part."""
        learned = write_part(trace, split.begin_us, split.cut_us, folder / "learned")
        held = write_part(trace, split.cut_us, split.end_us, folder / "held")
        alone = figures_of(held, split.days)
        if not alone.gpu_hours:
            return cls(trace, split, folder, learned, alone, None)
        machines, waited = machines_for(held, alone, split.days, folder)
        return cls(trace, split, folder, learned, alone.with_waits(waited), machines)

    def scores(self, seeds: int, progress: Progress, ledger: Ledger) -> dict[str, Any]:
        """Draw and judge each generator and assemble the table; each workload is a run in the ledger.

        Raises
        ------
        UsageError
            No model can be fitted to the first part, or one of its blocks cannot be judged.
        """
        starts = self.split.starts_us
        chosen = sorted({round(i) for i in np.linspace(0, len(starts) - 1, min(len(starts), _MOST_BLOCKS))})
        names = (*GENERATORS, *BASELINES)

        def drawn(name: str, seed: int) -> dict[str, Any]:
            model = self._model(progress)
            progress.stage(f"scoring generators: {name.replace('_', ' ')}")
            try:
                return self._judged(partial(self._draw, name, model, seed))
            except TracekitError as error:
                return {"failed": str(error)}

        def block(start_us: int) -> dict[str, Any]:
            progress.stage("scoring generators: blocks of the log")
            end_us = min(start_us + self.split.end_us - self.split.cut_us, self.split.cut_us)
            return self._judged(lambda out: write_part(self.learned, start_us, end_us, out))

        makers = {
            ledger.digest(generator=name, seed=seed): partial(_or_why_not, partial(drawn, name, seed))
            for name in names
            for seed in range(seeds)
        }
        makers |= {ledger.digest(block=starts[i]): partial(_or_why_not, partial(block, starts[i])) for i in chosen}
        found = ledger.results(makers, "workloads")
        for one in found:
            if "why_not" in one:
                raise UsageError(one["why_not"])
        runs: dict[str, list[dict[str, Judged]]] = {}
        failed: dict[str, str] = {}
        for place, name in enumerate(names):
            own = found[place * seeds : (place + 1) * seeds]
            reason = next((one["failed"] for one in own if "failed" in one), None)
            if reason is None:
                runs[name] = [_rows(one) for one in own]
            else:
                failed[name] = reason
        return _table(self, seeds, runs, failed, [_rows(one) for one in found[len(names) * seeds :]])

    def _model(self, progress: Progress) -> WorkloadModel:
        if self._fitted is None:
            progress.stage("scoring generators: fitting the first part")
            self._fitted = fit_model(self.learned, effort=Effort(replicates=0, drawn_only=True))
        return self._fitted

    def _draw(self, name: str, model: WorkloadModel, seed: int, out: Path) -> Trace:
        days = self.split.days
        if name in BASELINES:
            return draw_baseline(self.learned, name, days, seed, out, model.document["arrivals"].get("step_s", 1.0))
        method, _, half = name.partition("_")
        return generate(self.learned, out, days=days, seed=seed, method=method, model=model, hybrid=half or None)

    def _judged(self, make: Callable[[Path], Trace]) -> dict[str, Any]:
        """Return {'rows': the rows of one workload}, with waits measured at the load of the held-out part."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            made = make(Path(name) / "trace")
            if not made.has("jobs"):
                return {"rows": {}}
            alone = figures_of(made, self.split.days)
            if alone.gpu_hours and self.machines is not None:
                alone = alone.with_waits(waits(made, self.machines, self.log.gpu_hours / alone.gpu_hours))
            return {"rows": judged(self.log, alone)}


def _or_why_not(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a result, or {'why_not': the reason why nothing can be scored}, which all shards then report alike."""
    try:
        return make()
    except UsageError as error:
        return {"why_not": error.what}


def _rows(found: dict[str, Any]) -> dict[str, Judged]:
    return {row: Judged(*one) for row, one in found["rows"].items()}


def _table(
    bench: _Bench,
    seeds: int,
    drawn: dict[str, list[dict[str, Judged]]],
    failed: dict[str, str],
    blocks: list[dict[str, Judged]],
) -> dict[str, Any]:
    rows = []
    ranks: dict[str, list[float]] = {name: [] for name in drawn}
    for row in ROWS:
        found = {name: mine for name, runs in drawn.items() if (mine := _spread(row, runs)) is not None}
        if not found:
            continue
        blocks_apart = _spread(row, blocks)
        # Distances below those between the log's own blocks are noise and count as equal.
        floor = 0.0 if blocks_apart is None else float(blocks_apart["distance"])
        for name, rank in _ranks({name: max(one["distance"], floor) for name, one in found.items()}).items():
            ranks[name].append(rank)
            found[name]["rank"] = rank
        entries = [{"generator": name, **one} for name, one in found.items()]
        own = bench.log.values.get(row)
        rows.append({"row": row, "held_out": own, "log_blocks": blocks_apart, "generators": entries})
    mean = {name: float(np.mean(mine)) for name, mine in ranks.items() if mine}
    totals = [{"generator": name, "mean_rank": mean.get(name), "rows": len(mine)} for name, mine in ranks.items()]
    best = _best({name: mean[name] for name in _PREFERRED if name in mean})
    hybrid = _best({name: mean[name] for name in _PREFERRED if name in mean and name.startswith("hybrid")})
    split = bench.split
    return {
        "reason": None,
        "learned": {"days": split.learned_days, "jobs": split.learned_jobs},
        "held_out": {"days": split.days, "jobs": split.jobs},
        "seeds": seeds,
        "blocks": len(blocks),
        "machines": bench.machines.words if bench.machines is not None else None,
        "rows": rows,
        "totals": totals,
        "failed": [{"generator": name, "reason": reason} for name, reason in failed.items()],
        "best": best.partition("_")[0] if best else None,
        "hybrid": hybrid.partition("_")[2] if hybrid else None,
    }


def _best(rank: dict[str, float]) -> str | None:
    """Return the first generator whose mean rank is tied with the lowest, or None if there are no generators."""
    return next((name for name, mine in rank.items() if mine <= min(rank.values()) + _ALIKE), None)


def _spread(row: str, runs: list[dict[str, Judged]]) -> dict[str, Any] | None:
    """Return the medians and extremes of a row, or None if less than half of the runs have it."""
    mine = [run[row] for run in runs if row in run]
    if not mine or 2 * len(mine) < len(runs):
        return None
    values, distances = [j.value for j in mine], [j.distance for j in mine]
    return {
        "value": float(np.median(values)),
        "least": min(values),
        "most": max(values),
        "distance": float(np.median(distances)),
    }


def _ranks(distances: dict[str, float]) -> dict[str, float]:
    """Return the rank of each distance, from 1 for the smallest; equal distances share the mean of their ranks."""
    values = np.array(list(distances.values()))
    below = (values[:, None] > values[None, :]).sum(axis=1)
    equal = (values[:, None] == values[None, :]).sum(axis=1)
    return dict(zip(distances, (below + (equal + 1) / 2).tolist(), strict=True))
