"""Gavel: a trace of jobs, and the throughputs that determine their run times.

Source: github.com/stanford-futuredata/gavel, scheduler/utils.py (parse_trace, read_all_throughputs_json_v2), job.py and
the traces in scheduler/traces. A job is a line of ten fields separated by tabs. Gavel has no run times. Instead, a job
has a type and a number of steps, and a throughputs file gives the steps per second of each type on each kind of GPU, by
the number of GPUs (scale factor). If you give no throughputs file from Gavel, all jobs have a single type with one step
per second, and a throughputs file for this type is written next to the trace. Each job then runs as long as in the
Trace.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import orjson
import polars as pl

from tracekit.errors import SourceError, UsageError, nearest
from tracekit.export.interface import FRACTIONS, ExportLog, Field, JobSelection, Option, Options, Output, Target
from tracekit.export.targets._cluster import GPUS_PER_NODE, cluster_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_THROUGHPUTS = ".throughputs.json"
_OWN_TYPE = "tracekit"
_WORKERS = ("v100", "p100", "k80")
"""GPU kinds in a cluster specification, in this order."""
_KEY = re.compile(r"\('(.*)', (\d+)\)")


class GavelTarget(Target):
    """The trace and its throughputs."""

    name = "gavel"
    title = "Gavel trace"
    reads = "the trace file and --throughputs_file of its simulation scripts"
    fields = (
        Field("1 job type", "key of the throughputs", "option job_type"),
        Field("2 command", "used on real machines only", "option command"),
        Field("3 working directory", "used on real machines only", "'.'"),
        Field("4 argument of the steps", "used on real machines only", "'--num_steps'"),
        Field("5 needs a data folder", "0 or 1", "0"),
        Field("6 steps", "count", "sum of the attempts' run times times the throughput of type and scale, at least 1"),
        Field("7 scale factor", "GPUs", "gpu_count"),
        Field("8 priority weight", "weight for a fair scheduler", "option weight"),
        Field("9 SLO", "deadline divided by run time, or -1 for none", "-1"),
        Field("10 arrival", "s since the first submission", "submit_time"),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "fractions": FRACTIONS,
        "job_type": Option(_OWN_TYPE, "type of every job, as spelled in the throughputs file", form="line"),
        "throughputs": Option("", "a Gavel throughputs file (JSON); if empty, one is written next to the trace"),
        "gpus_per_node": GPUS_PER_NODE,
        "worker": Option("v100", "GPU kind on which jobs run as long as the Trace records", form="line"),
        "command": Option("true", "command of every job", form="line"),
        "weight": Option("1", "priority weight of every job", form="positive"),
    }
    companions: ClassVar[Mapping[str, str]] = {
        _THROUGHPUTS: "throughputs of the job type, unless the option throughputs names a file"
    }
    lost = "users, VCs, statuses, attempts, CPU jobs, limits"
    sources = ("github.com/stanford-futuredata/gavel, scheduler/utils.py, scheduler/job.py, scheduler/traces",)

    def check(self, options: Options) -> None:
        """Reject a job type that the throughputs file cannot contain."""
        if options.values["throughputs"] and options.values["job_type"] == _OWN_TYPE:
            raise UsageError(
                "no job type is given",
                where="--option job_type",
                hint="use a name from the throughputs file",
            )
        if "'" in options.values["job_type"]:
            raise UsageError(
                "contains a quote", where="--option job_type", hint="a Gavel throughputs file cannot contain quotes"
            )

    def beside(self, options: Options) -> tuple[str, ...]:
        """Return the suffix of the throughputs file, unless the user gives such a file."""
        return () if options.values["throughputs"] else (_THROUGHPUTS,)

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the trace and its throughputs."""
        kind, worker = options.values["job_type"], options.values["worker"]
        scales = [int(row[0]) for row in jobs.rows("SELECT DISTINCT size FROM chosen")]
        log.filled("job type", kind, jobs.count, "job_type")
        log.filled("priority weight", options.values["weight"], jobs.count, "weight")
        if options.values["throughputs"]:
            rates = _rates(Path(options.values["throughputs"]), kind, worker)
            log.note(f"steps are the run time times the throughput of {kind} on {worker}")
        else:
            rates = dict.fromkeys(scales, 1.0)
            out.companion(_THROUGHPUTS).write_bytes(_own_throughputs(kind, worker, sorted(scales)))
            log.note(
                f"the Trace has no throughputs, so {worker} does one step per second (options throughputs, worker)"
            )
        missing = sorted(scale for scale in scales if not rates.get(scale))
        if missing:
            sizes = ", ".join(str(scale) for scale in missing)
            count = jobs.count_where(f"size IN ({sizes})")
            log.left_out[f"the throughputs file has no {kind} on {sizes} GPUs"] = count
            log.written -= count
        if not log.written:
            raise UsageError(
                "no job can be exported", where=options.values["throughputs"], hint="choose another job type"
            )
        nodes, gpus = cluster_size(jobs, log, options)
        log.setting(_command(out.target, worker, nodes, gpus, options.values["throughputs"]))
        with out.main.open("wb") as file:
            for block in _lines(jobs, options, {s: r for s, r in rates.items() if r}):
                file.write(("\n".join(block) + "\n").encode() if len(block) else b"")


def _command(trace: Path, worker: str, nodes: int, gpus: int, throughputs: str) -> str:
    """Return the command that runs the simulation script."""
    counts = [str(nodes * gpus) if kind == worker else "0" for kind in _WORKERS]
    each = ":".join(str(gpus) for _ in _WORKERS)
    if worker not in _WORKERS:
        return (
            f"the scripts support only the GPUs {', '.join(_WORKERS)}: give the scheduler a cluster_spec with "
            f"{nodes * gpus} of {worker}, {gpus} per server"
        )
    return (
        f"python simulate_scheduler_with_trace.py -t {trace.name} "
        f"--throughputs_file {throughputs or trace.stem + _THROUGHPUTS} -c {':'.join(counts)} "
        f"--num_gpus_per_server {each} -p max_min_fairness"
    )


def _lines(jobs: JobSelection, options: Options, rates: Mapping[int, float]) -> Iterator[pl.Series]:
    fixed = (options.values["job_type"], options.values["command"], ".", "--num_steps", "0")
    weight = f"{options.positive('weight'):g}"
    for block in jobs.blocks("submit_s", "work_s", "size"):
        scale = pl.col("size").cast(pl.Int64)
        rate = scale.replace_strict(dict(rates), default=None, return_dtype=pl.Float64)
        rows = block.with_columns(rate=rate, scale=scale).filter(pl.col("rate").is_not_null())
        steps = (pl.col("work_s") * pl.col("rate") + 0.5).floor().cast(pl.Int64).clip(lower_bound=1)
        yield rows.select(
            line=pl.concat_str(
                *(pl.lit(text) for text in fixed),
                steps,
                "scale",
                pl.lit(weight),
                pl.lit("-1"),
                "submit_s",
                separator="\t",
            )
        )["line"]


def _own_throughputs(kind: str, worker: str, scales: list[int]) -> bytes:
    """Return throughputs of one type: one step per second alone, none if a job shares GPUs."""
    keys = [f"('{kind}', {scale})" for scale in scales]
    beside = {key: [0.0, 0.0] for key in keys}
    table = {worker: {key: {"null": 1.0, **beside} for key in keys}}
    return orjson.dumps(table, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _rates(file: Path, kind: str, worker: str) -> dict[int, float]:
    """Return a job type's steps per second if it runs alone on a kind of GPU, by number of GPUs.

    Raises
    ------
    SourceError
        The file is not a throughputs file.
    UsageError
        The file does not contain the kind of GPU or the job type.
    """
    try:
        table = orjson.loads(file.read_bytes())
        alone = {
            str(gpu): {
                (m[1], int(m[2])): float(pairs["null"]) for key, pairs in types.items() if (m := _KEY.fullmatch(key))
            }
            for gpu, types in table.items()
        }
    except OSError as error:
        raise SourceError(f"cannot read: {error.strerror}", where=file, hint="see option throughputs") from error
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise SourceError("is not a throughputs file of Gavel", where=file, hint="see option throughputs") from error
    if worker not in alone:
        raise UsageError(
            f"the throughputs file has no GPU '{worker}'", where="--option worker", hint=nearest(worker, alone)
        )
    kinds = {name for name, _ in alone[worker]}
    if kind not in kinds:
        raise UsageError(
            f"the throughputs file has no job type '{kind}'", where="--option job_type", hint=nearest(kind, kinds)
        )
    return {scale: rate for (name, scale), rate in alone[worker].items() if name == kind and rate > 0}


MEMBERS = (GavelTarget(),)
