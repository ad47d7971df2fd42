"""Score the generators of a log: each learns from its first part and is judged on its last, beside naive baselines.

A row of the table is one figure of a workload (`figures.ROWS`), and the distance of a generator is the median, over
seeds, of how far its figure is from that of the held-out part. In each row generators and baselines are ranked, equal
distances sharing their mean rank, and distances below that of the log's own blocks count as equal to it, since one part
of a log is no nearer to another; the score of a generator is its mean rank over the rows, and the least is best. Of
scores that differ by half a rank or less, that of the generator which keeps more of the log is taken.

Gaps and counts by hour are compared relative to their means, and for waits jobs come as much faster or slower as makes
the GPU-hours a day those of the held-out part: a part with another load than the rest of the log would make every
generator wrong alike. How much comes a day has rows of its own. Beside them stands the log itself: blocks of its first
part, as long as the held-out one, judged in the same way.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import TracekitError, UsageError
from tracekit.fit.api import fit
from tracekit.fit.generate import generate
from tracekit.fit.scores.baselines import BASELINES, draw_baseline
from tracekit.fit.scores.figures import ROWS, Judged, figures_of, judged
from tracekit.fit.scores.parts import split_of, write_part
from tracekit.fit.scores.waits import machines_for, waits
from tracekit.replay.sweeps.digests import code_of_replays, trace_facts
from tracekit.shards.digests import content_of
from tracekit.shards.items import SharedItems

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.fit.model import WorkloadModel
    from tracekit.fit.scores.figures import Figures
    from tracekit.fit.scores.parts import Split
    from tracekit.fit.scores.waits import Machines
    from tracekit.progress import Progress
    from tracekit.shards.work import SharedWork
    from tracekit.trace import Trace

__all__ = ["GENERATORS", "score"]

GENERATORS = ("model", "resample", "hybrid_arrivals", "hybrid_jobs")
"""What is scored, beside `BASELINES`."""
_PREFERRED = ("resample", "hybrid_arrivals", "hybrid_jobs", "model")
"""Of generators that score alike the first is taken, which keeps more of the log."""
_ALIKE = 0.5
"""Mean ranks that differ by no more are alike: on the Philly jobs of autumn 2017 they vary by 0.3 between seeds."""
_MOST_BLOCKS = 5
"""Most blocks of the first part that show how much the log differs from itself."""


def score(
    trace: Trace, seeds: int, progress: Progress, *, cluster: Path | None = None, shared: SharedWork | None = None
) -> dict[str, Any]:
    """Return the part `scores` of workload.json.

    Parameters
    ----------
    trace : Trace
        The log.
    seeds : int
        Workloads that are drawn of each generator; with 0 nothing is scored.
    progress : Progress
        Receives the steps.
    cluster : Path, optional
        A cluster file for the replays, in place of the log's machines.
    shared : SharedWork, optional
        The folder in which shards draw and judge workloads together, or gathers them.

    Raises
    ------
    UnfinishedError
        `shared` only gathers, and workloads are missing.
    OutputError
        The folder of `shared` cannot be written.
    """
    if not seeds:
        return _unscored("not asked for")
    try:
        split = split_of(trace)
    except UsageError as error:
        split = error.what
    if isinstance(split, str):
        return _unscored(split)
    with tempfile.TemporaryDirectory(prefix="tracekit-scores-") as name:
        try:
            bench = _Bench.prepared(trace, split, Path(name), cluster)
            return bench.scores(seeds, progress, None if shared is None else _items(shared, trace, cluster))
        except UsageError as error:
            return _unscored(error.what)


def _items(shared: SharedWork, trace: Trace, cluster: Path | None) -> SharedItems:
    facts = {
        "what": "fit scores",
        "trace": trace_facts(str(trace.path)),
        "code": code_of_replays("fit", "trace_writer"),
    }
    return SharedItems(shared, {**facts, "cluster": None if cluster is None else content_of(str(cluster))})


def _unscored(reason: str) -> dict[str, Any]:
    return {"reason": reason, "best": None, "hybrid": None}


@dataclass
class _Bench:
    """The parts of a log, what is known of the one that is held out, and what the other gave."""

    trace: Trace
    split: Split
    folder: Path
    learned: Trace
    """The part to learn from."""
    log: Figures
    """Of the part that is held out."""
    machines: Machines | None
    """None where GPUs or run times are not known."""

    @classmethod
    def prepared(cls, trace: Trace, split: Split, folder: Path, cluster: Path | None) -> _Bench:
        """Write both parts and replay the held-out one."""
        learned = write_part(trace, split.begin_us, split.cut_us, folder / "learned")
        held = write_part(trace, split.cut_us, split.end_us, folder / "held")
        alone = figures_of(held, split.days)
        if not alone.gpu_hours:
            return cls(trace, split, folder, learned, alone, None)
        machines, waited = machines_for(held, alone, split.days, folder, cluster)
        return cls(trace, split, folder, learned, alone.with_waits(waited), machines)

    def scores(self, seeds: int, progress: Progress, shared: SharedItems | None = None) -> dict[str, Any]:
        """Draw and judge every generator, and put the table together."""
        starts = self.split.starts_us
        chosen = sorted({round(i) for i in np.linspace(0, len(starts) - 1, min(len(starts), _MOST_BLOCKS))})
        blocks = [starts[i] for i in chosen]
        if shared is not None:
            return _table(self, seeds, *self._shared(seeds, blocks, progress, shared))
        progress.stage("scoring generators: fitting the first part")
        failed: dict[str, str] = {}
        drawn: dict[str, list[dict[str, Judged]]] = {}
        model = fit(self.learned, replicates=0, drawn_only=True)
        for name in (*GENERATORS, *BASELINES):
            progress.stage(f"scoring generators: {name.replace('_', ' ')}")
            try:
                drawn[name] = [self._judged(self._maker(name, model, seed)) for seed in range(seeds)]
            except TracekitError as error:
                failed[name] = str(error)
        progress.stage("scoring generators: blocks of the log")
        return _table(self, seeds, drawn, failed, [self._judged(self._block(start)) for start in blocks])

    def _shared(
        self, seeds: int, blocks: list[int], progress: Progress, shared: SharedItems
    ) -> tuple[dict[str, list[dict[str, Judged]]], dict[str, str], list[dict[str, Judged]]]:
        """Return what was drawn of each generator, why some failed, and blocks: each workload is an item of shards."""
        model: list[WorkloadModel] = []

        def judged_or_error(name: str, make: Callable[[], Callable[[Path], Trace]]) -> dict[str, Any]:
            progress.stage(f"scoring generators: {name.replace('_', ' ')}")
            try:
                rows = self._judged(make())
            except TracekitError as error:
                return {"error": str(error), "what": error.what}
            return {"rows": {row: [one.value, one.distance] for row, one in rows.items()}}

        def maker(name: str, seed: int) -> Callable[[Path], Trace]:
            if not model:
                model.append(fit(self.learned, replicates=0, drawn_only=True))
            return self._maker(name, model[0], seed)

        names = (*GENERATORS, *BASELINES)
        makers = {
            shared.digest(generator=name, seed=seed): partial(judged_or_error, name, partial(maker, name, seed))
            for seed in range(seeds)
            for name in names
        }
        for start in blocks:
            makers[shared.digest(block=start)] = partial(
                judged_or_error, "blocks of the log", partial(self._block, start)
            )
        found = shared.work.of(makers, "workloads")
        drawn: dict[str, list[dict[str, Judged]]] = {}
        failed: dict[str, str] = {}
        for place, name in enumerate(names):
            mine = found[place : seeds * len(names) : len(names)]
            errors = [one["error"] for one in mine if "error" in one]
            if errors:
                failed[name] = errors[0]
            else:
                drawn[name] = [_rows(one) for one in mine]
        return drawn, failed, [_rows(one) for one in found[seeds * len(names) :]]

    def _maker(self, name: str, model: WorkloadModel, seed: int) -> Callable[[Path], Trace]:
        days = self.split.days
        if name in BASELINES:
            step_s = model.document["arrivals"].get("step_s", 1.0)
            return lambda out: draw_baseline(self.learned, name, days, seed, out, step_s)
        method, _, half = name.partition("_")
        return lambda out: generate(
            self.learned, out, days=days, seed=seed, method=method, model=model, hybrid=half or None
        )

    def _block(self, start_us: int) -> Callable[[Path], Trace]:
        end_us = start_us + (self.split.end_us - self.split.cut_us)
        return lambda out: write_part(self.learned, start_us, min(end_us, self.split.cut_us), out)

    def _judged(self, make: Callable[[Path], Trace]) -> dict[str, Judged]:
        """Return the rows of one workload; those of waits at the load of the held-out part."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            made = make(Path(name) / "trace")
            if not made.has("jobs"):
                return {}
            alone = figures_of(made, self.split.days)
            if not alone.gpu_hours or self.machines is None:
                return judged(self.log, alone)
            waited = waits(made, self.machines, self.log.gpu_hours / alone.gpu_hours)
            return judged(self.log, alone.with_waits(waited))


def _rows(found: dict[str, Any]) -> dict[str, Judged]:
    """Return the rows of a workload that was judged.

    Raises
    ------
    UsageError
        It could not be made.
    """
    if "error" in found:
        raise UsageError(found["what"])
    return {row: Judged(value, distance) for row, (value, distance) in found["rows"].items()}


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
        # Nearer than the log is to itself is no nearer: below that, distances are chance.
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
    """Return the first generator whose mean rank is as good as the least; None where there is none."""
    return next((name for name, mine in rank.items() if mine <= min(rank.values()) + _ALIKE), None)


def _spread(row: str, runs: list[dict[str, Judged]]) -> dict[str, Any] | None:
    """Return the medians and extremes of a row; None where less than half of the runs have it."""
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
    """Return the rank of each, 1 for the least; equal ones share the mean of their ranks."""
    values = np.array(list(distances.values()))
    below = (values[:, None] > values[None, :]).sum(axis=1)
    equal = (values[:, None] == values[None, :]).sum(axis=1)
    return dict(zip(distances, (below + (equal + 1) / 2).tolist(), strict=True))
