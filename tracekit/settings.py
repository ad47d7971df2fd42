"""The command-line options, each defined once, and the settings of each stage, which consist of these options.

`tracekit.analyze(source, out, fit=False)` takes a setting as a keyword, `tracekit analyze` as an option. Both call code
that gets all settings in one object. A new setting is defined only here and used where needed.
"""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from tracekit.tenant import DIMENSIONS

T = TypeVar("T")


@dataclass(frozen=True)
class Flag:
    """The command-line option for a setting."""

    option: str
    """The option's names and a placeholder for its value, such as '-o --output OUT'. Messages use the last name.

    If a setting is on by default, its option turns it off, unless the name contains both forms
    ('--browser/--no-browser').
    """
    meaning: str
    least: float | None = None
    most: float | None = None
    variable: str | None = None
    """Environment variable that can also set the value."""

    @property
    def names(self) -> list[str]:
        """The option's names, such as ['-o', '--output']."""
        return [word for word in self.option.split() if word.startswith("-")]

    @property
    def name(self) -> str:
        """The option's name in messages, such as '--output'."""
        return self.names[-1]

    @property
    def metavar(self) -> str | None:
        """Placeholder for the value in the help, or None to show the type's name."""
        return next((word for word in self.option.split() if not word.startswith("-")), None)


def flags_of(kind: type) -> dict[str, tuple[Any, Flag]]:
    """Return the type and option of each setting by name; settings without an option are omitted."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Annotated}


def merge_settings(kind: type[T], given: T | None, changes: Mapping[str, Any]) -> T:
    """Return the given settings, or the defaults, with the changes applied.

    Raises
    ------
    TypeError
        A changed setting does not exist.
    """
    found: T = replace(kind() if given is None else given, **changes)  # type: ignore[type-var]
    return found


# Options of several commands.

OutFolder = Annotated[Path, Flag("-o --output OUT", "Folder for the results.")]
OutFile = Annotated[Path | None, Flag("-o --output FILE", "Write to a file; '-' is stdout.")]
Force = Annotated[bool, Flag("--force", "Replace an earlier output of the same kind.")]
ForceFile = Annotated[bool, Flag("--force", "Replace the file given by -o.")]
ForceReplay = Annotated[
    bool,
    Flag("--force", "Replace an earlier output, and replay even if most of the work cannot run on this cluster."),
]
ListForm = Annotated[Literal["table", "json"], Flag("-f --output-format", "Format of the list.")]
TableForm = Annotated[Literal["table", "csv", "json", "parquet"], Flag("-f --output-format", "Format of the result.")]
MemoryLimit = Annotated[
    str | None, Flag("--memory-limit SIZE", "Memory limit for joins, such as 2GB. Larger joins use the disk.")
]
TenantColumn = Annotated[
    str | None,
    Flag(
        "--by COLUMN",
        f"Use this column of jobs as the tenant: {', '.join(DIMENSIONS)}. The default is the tenant chosen at ingest, "
        "which replays, twins and fits always use.",
    ),
]
Anonymize = Annotated[
    bool, Flag("--anonymize", "Show pseudonyms instead of the names of users, accounts, jobs, nodes and so on.")
]
SaltFile = Annotated[
    Path | None,
    Flag(
        "--salt-file FILE",
        "File with the salt of the pseudonyms; created if missing. The same salt gives the same pseudonyms.",
    ),
]
EngineName = Annotated[
    str, Flag("--engine NAME", "Engine that runs the SQL: duckdb (this process) or spark (docs/reference/spark.md).")
]
Master = Annotated[
    str | None,
    Flag("--master URL", "Spark master, such as spark://host:7077, yarn or local[4]; this machine by default."),
]
MapFile = Annotated[
    Path | None,
    Flag(
        "--map FILE",
        "Mapping file (TOML) for any other log layout or, with --format NAME, for extra files next to that log. "
        "'tracekit formats --template csv' prints an example.",
    ),
]
ModelsFile = Annotated[str | Path | None, Flag("--models FILE", "Assumptions (TOML) that replace the built-in ones.")]
Workers = Annotated[int | None, Flag("--workers N", "Number of processes; one per processor by default.", 1)]
Shard = Annotated[str | None, Flag("--shard I/N", "Run part I of N (see docs/howto/shards.md).")]
Collect = Annotated[bool, Flag("--collect", "Merge the results of the shards; fail if any are missing.")]


@dataclass(frozen=True)
class IngestSettings:
    """Settings for reading raw logs."""

    format_name: Annotated[
        str | None, Flag("--format NAME", "Source format; detected by default. See 'tracekit formats'.")
    ] = None
    options: Annotated[
        Mapping[str, str] | None,
        Flag("--option NAME=VALUE", "Option of the source format; may be repeated. See 'tracekit formats'."),
    ] = None
    telemetry: Annotated[
        tuple[str, ...],
        Flag(
            "--telemetry SRC",
            "GPU telemetry to join with the jobs: a file or folder, possibly in a bucket, or the address of a "
            "Prometheus server (http://host:9090); may be repeated. Telemetry in the logs' folder is found "
            "automatically.",
        ),
    ] = ()
    max_reject_share: Annotated[
        float, Flag("--max-reject-share", "Fail if more than this share of the records in a file is unusable.", 0, 1)
    ] = 0.5
    # Text logs expand far less than this, zip bombs far more.
    max_inflation: Annotated[
        float,
        Flag("--max-inflation N", "Largest allowed expansion of a compressed file, as a multiple of its size.", 1),
    ] = 200
    memory_limit: MemoryLimit = None
    partition: Annotated[
        str,
        Flag(
            "--partition day|none|auto",
            "Split tables into one file per cluster and day: all large tables (day), none, or only tables above 100 "
            "million rows or 2 GiB (auto).",
        ),
    ] = "auto"
    start: Annotated[
        dt.datetime | None,
        Flag(
            "--from TIME",
            "Query live sources from this time on (ISO 8601, UTC). The default for slurm: is the last day of TRACE or "
            "30 days ago, and for telemetry servers the first job start.",
        ),
    ] = None
    end: Annotated[
        dt.datetime | None,
        Flag(
            "--to TIME",
            "Query live sources up to this time. The default is now, or the last job end for telemetry servers.",
        ),
    ] = None


@dataclass(frozen=True)
class AnalysisSettings(IngestSettings):
    """Settings for analyzing logs or a Trace."""

    start: Annotated[
        dt.datetime | None,
        Flag(
            "--from TIME",
            "For a Trace, use only jobs submitted from this time on (ISO 8601, UTC). For logs, query live sources "
            "from this time on.",
        ),
    ] = None
    end: Annotated[
        dt.datetime | None,
        Flag(
            "--to TIME", "For a Trace, use only jobs submitted before this time. For logs, query live sources up to it."
        ),
    ] = None
    cluster: Annotated[
        str | None, Flag("--cluster --cluster-name NAME", "For a Trace, use only jobs submitted to this cluster.")
    ] = None
    allow_missing: Annotated[
        bool,
        Flag("--allow-missing", "Skip missing or damaged partitions of a Trace, and name them."),
    ] = False
    capacity: Annotated[
        str,
        Flag("--capacity SOURCE", "Source of the GPU counts: listed, observed, or a CSV file (node_id, gpu_count)."),
    ] = "listed"
    by: TenantColumn = None
    fit: Annotated[bool, Flag("--no-fit", "Do not fit the workload.")] = True
    # The default policies replay this many jobs in seconds, and most clusters submit them over months.
    replay_jobs: Annotated[
        int,
        Flag(
            "--replay-jobs N",
            "Replay at most N jobs in total, the first of each cluster, to estimate the effect of changes.",
            0,
        ),
    ] = 100_000
    twin: Annotated[
        Path | None,
        Flag("--twin FILE.toml", "Replay in this twin from 'tracekit calibrate'. By default, tracekit makes one."),
    ] = None
    compare: Annotated[
        str | None,
        Flag(
            "--compare OTHER",
            "Report what changed since other logs or another Trace, or since a day (2017-10-31) of SRC.",
        ),
    ] = None
    prices: Annotated[
        Path | None,
        Flag(
            "--prices FILE",
            "Prices of GPU-hours (TOML, docs/efficiency.md), for a bill and OUT/bill.csv. The default is "
            "prices.toml in SRC, if it exists.",
        ),
    ] = None
    anonymize: Anonymize = False
    salt_file: SaltFile = None
    engine: EngineName = "duckdb"
    master: Master = None
    pdf: Annotated[bool, Flag("--pdf", "Also print the page to report.pdf (requires Chromium or Chrome).")] = False

    def command(self, source: Path, out: Path) -> str:
        """Return the command that reproduces the report, without settings at their defaults.

        If names are hidden, so are file names. The engine is omitted: all engines produce the same report.
        """
        if self.anonymize:
            return "tracekit analyze LOGS -o OUT --anonymize"
        words = ["tracekit", "analyze", str(source), "-o", str(out)]
        defaults = AnalysisSettings()
        for name, (_, flag) in flags_of(AnalysisSettings).items():
            value = getattr(self, name)
            if value == getattr(defaults, name) or name in {"engine", "master"}:
                continue
            if isinstance(value, bool):
                words.append(flag.name)
            elif isinstance(value, tuple):
                words += [word for text in value for word in (flag.name, text)]
            elif isinstance(value, Mapping):
                words += [word for key, text in value.items() for word in (flag.name, f"{key}={text}")]
            elif value is not None:
                words += [flag.name, f"{value:g}" if isinstance(value, float) else str(value)]
        return shlex.join(words)


@dataclass(frozen=True)
class ReplaySettings:
    """Settings that select the jobs to replay and the cluster."""

    placement: Annotated[
        str, Flag("--placement NAME", "Placement rule: consolidate, best-fit, worst-fit (spread), first-fit or buddy.")
    ] = "consolidate"
    cluster: Annotated[
        Any,
        Flag(
            "--cluster auto|FILE.toml",
            "Nodes: 'auto' (the most in use in the log) or a file (docs/replay.md). The default is the Trace's nodes.",
        ),
    ] = None
    """A string, a path or a Cluster."""
    cluster_name: Annotated[
        str | None,
        Flag(
            "--cluster-name NAME", "Cluster to replay if the Trace has several; the one with the most jobs by default."
        ),
    ] = None
    partitioned: Annotated[
        bool | None,
        Flag(
            "--vc-partitions",
            "Make each VC a separate cluster. The default follows the source: Helios, for example, does so. A "
            "policy that lends quotas may then share the nodes.",
        ),
    ] = None
    start: Annotated[
        dt.datetime | None, Flag("--from TIME", "Replay only jobs submitted from this time on (ISO 8601, UTC).")
    ] = None
    end: Annotated[dt.datetime | None, Flag("--to TIME", "Replay only jobs submitted before this time.")] = None
    load: Annotated[float, Flag("--load X", "Multiply the offered load by X: jobs arrive X times as fast.")] = 1.0
    gpus: Annotated[float | None, Flag("--gpus X", "Multiply the number of nodes by X.")] = None
    node_events: Annotated[
        bool,
        Flag("--no-node-events", "Ignore node outages: treat down, drained and maintained nodes as available."),
    ] = True
    outages: Annotated[
        str | None,
        Flag(
            "--outages recorded|model|rate=R[,repair=H]",
            "Let node outages stop jobs: recorded outages, outages sampled from the log, or R outages per node and day "
            "that last H hours on average. By default, nodes are out of service as recorded, but their jobs continue.",
        ),
    ] = None
    checkpoint: Annotated[
        str | None,
        Flag(
            "--checkpoint interval=S|daly|none,cost=S,restart=S",
            "With --outages: seconds of work between checkpoints, cost of a checkpoint, and length of a restart. The "
            "default is interval=3600,cost=0,restart=300.",
        ),
    ] = None
    spares: Annotated[
        int, Flag("--spares N", "With --outages: keep N nodes free to replace nodes that fail.", 0, 1_000_000)
    ] = 0
    lend_spares: Annotated[bool, Flag("--lend-spares", "Let preemptible jobs use spares until they are needed.")] = (
        False
    )
    limit: Annotated[int | None, Flag("--limit N", "Replay only the first N jobs.")] = None
    seed: Annotated[int, Flag("--seed N", "Random seed.", 0, 2**63 - 1)] = 0
    models: ModelsFile = None
    measure_from: Annotated[
        dt.datetime | None,
        Flag("--measure-from TIME", "Compute the results only over jobs submitted from this time on."),
    ] = None
    measure_to: Annotated[
        dt.datetime | None, Flag("--measure-to TIME", "Compute the results only over jobs submitted before this time.")
    ] = None
    force: bool = False
    """Whether to replay even if this cluster can never run most of the work."""


@dataclass(frozen=True)
class CalibrateSettings:
    """Settings that select the part of a log for calibrations and their scores."""

    twin: Annotated[
        Path | None, Flag("--twin FILE.toml", "With --report: score this twin instead of searching for one.")
    ] = None
    policy: Annotated[
        str | None,
        Flag("-p --policy POLICY[,key=value...]", "With --report: score this policy instead of the twin's rules."),
    ] = None
    clusters: Annotated[
        tuple[str, ...], Flag("--cluster-name NAME", "Use only this cluster; may be repeated. All clusters by default.")
    ] = ()
    limit: Annotated[int, Flag("--limit N", "Use only the first N jobs of each cluster.", 1)] = 100_000
    seed: Annotated[int, Flag("--seed", "Seed of the random start-up delays.", 0)] = 0


@dataclass(frozen=True)
class PlanSettings:
    """Settings for planning nodes for a target wait, or spare nodes for a large job."""

    target: Annotated[
        str | None, Flag("--target 'p90<=1h'", "Longest acceptable mean, p50, p90 or p99 wait, in s, min, h or d.")
    ] = None
    jobs_for: Annotated[
        tuple[str, ...],
        Flag("--for size=8|vc=NAME|cluster=NAME", "Jobs whose wait counts; may be repeated. All jobs by default."),
    ] = ()
    twin: Annotated[Path | None, Flag("--twin FILE.toml", "Twin to use. By default, one is calibrated now.")] = None
    nodes: Annotated[str | None, Flag("--nodes N,N,...", "Test only these numbers of nodes.")] = None
    model: Annotated[str | None, Flag("--model NAME", "Vary only the nodes of this GPU model.")] = None
    growth: Annotated[str, Flag("--growth X,X,...", "Jobs per day, as multiples of the log's.")] = "1"
    policies: Annotated[
        tuple[str, ...], Flag("-p --policy POLICY[,key=value...]", "Also try this policy; may be repeated.")
    ] = ()
    node_cost: Annotated[float | None, Flag("--node-cost X", "Cost of owning a node for an hour.")] = None
    wait_cost: Annotated[float | None, Flag("--wait-cost X", "Cost of an hour of waiting by one job.")] = None
    gang: Annotated[
        str | None,
        Flag("--gang N|Nnodes", "Find how many spare nodes a large job (gang) of N GPUs or N nodes needs instead."),
    ] = None
    ettr: Annotated[
        float | None,
        Flag("--ettr X", "With --gang: target share of time spent on useful work (ETTR); 0.95 by default."),
    ] = None
    checkpoint: Annotated[
        str | None,
        Flag(
            "--checkpoint interval=S|daly|none,cost=S,restart=S",
            "With --gang: checkpoint times in seconds. The default is interval=3600,cost=0,restart=300.",
        ),
    ] = None
    resamples: Annotated[int, Flag("--resamples N", "Number of random months, or of random sets of nodes.")] = 40
    limit: Annotated[int, Flag("--limit N", "Without --twin: use only the first N jobs.", 1)] = 100_000
    seed: Annotated[int, Flag("--seed N", "Random seed.", 0)] = 0
    workers: Workers = None


@dataclass(frozen=True)
class FitSettings:
    """Settings for fitting and testing a workload model."""

    seed: Annotated[int, Flag("--seed N", "Seed of the goodness-of-fit tests and the bootstrap.", 0)] = 0
    replicates: Annotated[int, Flag("--bootstrap N", "Samples per p-value, or 0 to skip the p-values.", 0)] = 99
    scores: Annotated[
        int,
        Flag(
            "--scores N",
            "Workloads per generator that are scored on the last part of the log, or 0 to skip the scores.",
            0,
        ),
    ] = 5


@dataclass(frozen=True)
class GenerateSettings:
    """Settings for how many jobs to generate, and how."""

    jobs: Annotated[int | None, Flag("--jobs N", "Number of jobs.")] = None
    days: Annotated[float | None, Flag("--days D", "Number of days instead of --jobs.")] = None
    seed: Annotated[int, Flag("--seed S", "Random seed. The same seed gives the same tables.")] = 0
    scale_load: Annotated[float, Flag("--scale-load X", "Multiply the arrivals by this factor.")] = 1.0
    load: Annotated[
        float | None,
        Flag(
            "--load X",
            "Set the load instead: requested GPU-seconds per second divided by the GPUs of the cluster.",
        ),
    ] = None
    scale_gpus: Annotated[float, Flag("--scale-gpus X", "Multiply machines and quotas by this factor.")] = 1.0
    method: Annotated[
        Literal["model", "resample", "hybrid"] | None,
        Flag(
            "--method",
            "Sample every job from a model, resample whole days of a Trace, or combine both (hybrid). The "
            "default for a Trace is the method that scored best in --model or, without scores, resampled days.",
        ),
    ] = None
    model: Annotated[
        Path | None,
        Flag(
            "--model FILE",
            "With a Trace: its model, with scores. By default, tracekit fits one if needed.",
        ),
    ] = None
    hybrid: Annotated[
        Literal["arrivals", "jobs"] | None,
        Flag("--hybrid", "Part of a hybrid that comes from the log. The default is the part that scored better."),
    ] = None
    rate: Annotated[
        Literal["mean", "end", "fitted"] | None,
        Flag(
            "--rate",
            "Arrivals of a model: at the log's mean rate (the default), at its final rate, or following its changes "
            "and trend.",
        ),
    ] = None
    force: Force = False


@dataclass(frozen=True)
class DigestSettings:
    """Settings for a digest's week and its readers."""

    week: Annotated[str | None, Flag("--week 2026-W47", "ISO week; the last full week by default.")] = None
    by: Annotated[
        Literal["user", "account"],
        Flag("--by", "Write a page for each user or each account, in addition to the operator's."),
    ] = "user"
    anonymize: Anonymize = False
    salt_file: SaltFile = None
    force: Force = False
    memory_limit: MemoryLimit = None
