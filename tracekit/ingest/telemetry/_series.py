"""Represent series of samples during ingest, and name the metrics of GPU monitors and their columns.

A series is one metric of one GPU with one set of labels. Labels are stored once, and a sample is only three numbers, so
months of a cluster's data stay small until DuckDB joins them.

The metric names come from NVIDIA's dcgm-exporter (its field list etc/default-counters.csv), the exporter of Princeton's
Jobstats (nvidia_gpu_*), utkuozdemir's nvidia_gpu_exporter (nvidia_smi_*), the Alliance's slurm-job-exporter
(slurm_job_*), AMD's device_metrics_exporter (gpu_*, with the prefix amd_ in some clusters) and omnistat (rocm_*), and
OpenTelemetry's conventions (hw.gpu.*), in which Prometheus replaces dots by underscores and appends the unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import duckdb
    from numpy.typing import NDArray

    from tracekit.ingest.sink import OpenedFile


_GIB = 2.0**-30
_MIB = 2.0**-10

XID = "xid"
"""The metric with the number of the last error, which fills node_events."""


class Metric(NamedTuple):
    """The column of gpu_utilization that a metric fills."""

    column: str
    factor: float = 1.0
    """Factor from the metric's unit to the column's unit."""
    rank: int = 0
    """If two metrics fill the same column for one GPU, the metric with the lower rank is used."""
    is_counter: bool = False
    """Whether the metric is a counter, such as energy. The column then gets the increase per second."""


MOST = {
    "utilization_pct": 101.0,
    "memory_used_gib": 100_000.0,
    "power_w": 100_000.0,
    "sm_active_pct": 101.0,
    "tensor_active_pct": 101.0,
    XID: 100_000.0,
}
"""Maximum valid values. Without a sensor, DCGM reports a 'blank' number in the billions. A share may slightly exceed
100 %, because its interval is rounded.
"""

METRICS = {
    "DCGM_FI_DEV_GPU_UTIL": Metric("utilization_pct"),
    # Share of time in which the graphics or compute engine was active. This is the only utilization metric for MIG
    # slices.
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": Metric("utilization_pct", 100.0, rank=1),
    "DCGM_FI_DEV_FB_USED": Metric("memory_used_gib", _MIB),
    "DCGM_FI_DEV_POWER_USAGE": Metric("power_w"),
    "DCGM_FI_PROF_SM_ACTIVE": Metric("sm_active_pct", 100.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": Metric("tensor_active_pct", 100.0),
    "DCGM_FI_DEV_XID_ERRORS": Metric(XID),
    "nvidia_gpu_duty_cycle": Metric("utilization_pct"),
    "nvidia_gpu_memory_used_bytes": Metric("memory_used_gib", _GIB),
    "nvidia_gpu_power_usage_milliwatts": Metric("power_w", 1e-3),
    "nvidia_smi_utilization_gpu_ratio": Metric("utilization_pct", 100.0),
    "nvidia_smi_memory_used_bytes": Metric("memory_used_gib", _GIB),
    "nvidia_smi_power_draw_watts": Metric("power_w"),
    "slurm_job_utilization_gpu": Metric("utilization_pct"),
    "slurm_job_memory_usage_gpu": Metric("memory_used_gib", _GIB),
    "slurm_job_power_gpu": Metric("power_w", 1e-3),
    **{
        f"{prefix}{name}": metric
        for prefix in ("", "amd_")
        for name, metric in {
            "gpu_gfx_activity": Metric("utilization_pct"),
            "gpu_used_vram": Metric("memory_used_gib", _MIB),
            "gpu_power_usage": Metric("power_w"),
            "gpu_package_power": Metric("power_w", rank=1),
            "gpu_average_package_power": Metric("power_w", rank=2),
            "gpu_energy_consumed": Metric("power_w", 1e-6, rank=3, is_counter=True),
        }.items()
    },
    "rocm_utilization_percentage": Metric("utilization_pct"),
    "rocm_average_socket_power_watts": Metric("power_w"),
    "rocm_energy_joules": Metric("power_w", rank=3, is_counter=True),
    "hw_gpu_utilization_ratio": Metric("utilization_pct", 100.0),
    "hw_gpu_utilization": Metric("utilization_pct", 100.0),
    "hw.gpu.utilization": Metric("utilization_pct", 100.0),
    "hw_gpu_memory_usage_bytes": Metric("memory_used_gib", _GIB),
    "hw_gpu_memory_usage": Metric("memory_used_gib", _GIB),
    "hw.gpu.memory.usage": Metric("memory_used_gib", _GIB),
    "hw_power_watts": Metric("power_w"),
    "hw.power": Metric("power_w"),
    "hw_energy_joules_total": Metric("power_w", rank=3, is_counter=True),
    "hw.energy": Metric("power_w", rank=3, is_counter=True),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": Metric("power_w", 1e-3, rank=3, is_counter=True),
}
"""The metrics to read, by name."""

NODE_METRICS = ("kube_node_status_condition", "kube_node_spec_unschedulable")
"""Metrics of kube-state-metrics that fill node_events: a Kubernetes node's conditions and whether it is cordoned."""

DIVIDED = Metric("utilization_pct", rank=2)
"""Utilization of a divided GPU (MIG) and its slices, which the driver does not measure. The engine-active share wins. A
utilization that is never above 0 is unknown.
"""

COLUMNS = tuple(dict.fromkeys(m.column for m in METRICS.values() if m.column != XID))
"""Columns of gpu_utilization that telemetry fills."""

OWN = {f"gpu_utilization.{column}": Metric(column, rank=-1) for column in COLUMNS}
"""Metrics for columns already filled by the log or a mapping file. All their values are accepted."""


class Labels(NamedTuple):
    """The GPU, machine and job of a series, as the monitor names them, or None."""

    host: str | None
    """Name of the machine."""
    gpu_index: int | None = None
    uuid: str | None = None
    gpu_instance: str | None = None
    """Part of a divided GPU (MIG), given by its profile, if known, and its number on the GPU, such as 3g.40gb/1."""
    job: str | None = None
    """The scheduler's job number."""
    namespace: str | None = None
    pod: str | None = None


class Samples(NamedTuple):
    """Samples of one series."""

    labels: Labels
    metric: str
    """Name of the metric in `METRICS`."""
    times: NDArray[np.int64]
    """Times in UTC, in microseconds since 1970."""
    values: NDArray[np.float64]
    """Values in the metric's own unit."""


@dataclass
class SeriesTable:
    """Assigns a number to each series."""

    numbers: dict[tuple[Labels, str], int] = field(default_factory=dict)

    def number(self, labels: Labels, metric: str) -> int:
        """Return the number of a series. Equal labels and metrics have the same number."""
        return self.numbers.setdefault((labels, metric), len(self.numbers))

    def frame(self) -> pl.DataFrame:
        """Return the series, with columns series, metric, and one per label."""
        kinds = {**dict.fromkeys(Labels._fields, pl.String), "gpu_index": pl.Int64, "metric": pl.String}
        rows = [(*labels, metric) for labels, metric in self.numbers]
        return pl.DataFrame(rows, schema=kinds, orient="row").with_row_index("series")


_HOST = ("Hostname", "hostname", "node", "kubernetes_node", "host_name", "host.name", "exported_instance", "instance")
_JOB = ("hpc_job", "slurm_job_id", "slurm_job", "slurmjobid", "jobid", "job_id")
_INDEX = (
    "gpu",
    "minor_number",
    "index",
    "gpu_index",
    "gpu_id",
    "card",
    "hw_id",
    "hw.id",
    "hw_name",
    "hw.name",
    "device",
)
_DEVICE = re.compile(r"(?:nvidia|gpu|card)?[ _]?(\d{1,5})", re.ASCII | re.IGNORECASE)


def gpu_metric(metric: Mapping[str, object]) -> str | None:
    """Return a GPU series' name in `METRICS`, or None if the series fills no column.

    OpenTelemetry uses the same names for hardware of every type and for encoders, which `hw.type` and `hw.gpu.task`
    distinguish.
    """
    name = metric.get("__name__")
    if not isinstance(name, str) or name not in METRICS:
        return None
    kind = metric.get("hw_type", metric.get("hw.type"))
    task = metric.get("hw_gpu_task", metric.get("hw.gpu.task"))
    if name.startswith(("hw_", "hw.")) and (
        kind not in ((None, "gpu") if "gpu" in name else ("gpu",)) or task not in (None, "", "general")
    ):
        return None
    return name


def rises(
    metric: str, times: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return a gauge's samples unchanged, and convert a counter's samples to its increase per second.

    The increase from one sample to the next becomes a sample at the earlier time. If the value falls, the counter was
    reset.
    """
    if not METRICS[metric].is_counter:
        return times, values
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    passed, rise = np.diff(times), np.diff(values)
    good = (passed > 0) & (rise >= 0)
    return times[:-1][good], rise[good] / (passed[good] / 1e6)


def labels_of(metric: Mapping[str, object]) -> Labels:
    """Return the GPU, machine and job named in the labels of a Prometheus series.

    If a label exists twice, Prometheus renames the sample's label to `exported_...`. The renamed label describes the
    job, and the plain label describes the exporter. dcgm-exporter's pod is not a job.
    """
    text = {name: value for name, value in metric.items() if isinstance(value, str) and value}
    renamed = "exported_pod" in text
    pod = text.get("exported_pod" if renamed else "pod")
    if pod is not None and not renamed and "dcgm-exporter" in pod:
        pod = None
    namespace = text.get("exported_namespace") if renamed else text.get("namespace")
    host = next((text[name] for name in _HOST if name in text), None)
    index = next((found[1] for name in _INDEX if (found := _DEVICE.fullmatch(text.get(name, "")))), "")
    return Labels(
        host=None if host is None else _without_port(host),
        gpu_index=int(index) if index and len(index) < 6 else None,
        uuid=text.get("UUID") or text.get("uuid") or text.get("gpu_uuid"),
        gpu_instance="/".join(text[name] for name in ("GPU_I_PROFILE", "GPU_I_ID") if name in text) or None,
        job=next((text[name] for name in _JOB if name in text), None),
        namespace=namespace if pod is not None else None,
        pod=pod,
    )


def _without_port(host: str) -> str:
    """Return the host of an address such as node7:9400. An IPv6 address is unchanged."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and ":" not in name else host


def host_of(path: str, hosts: frozenset[str]) -> str:
    """Return the machine whose name is a whole word in the file's path, the longest if several match.

    Raises
    ------
    SourceError
        The path names none of the log's machines, or several.
    """
    words = [path.rpartition(".")[0], path]
    found = [
        host
        for host in hosts
        if any(re.search(rf"(?<![0-9A-Za-z]){re.escape(host)}(?![0-9A-Za-z])", word) for word in words)
    ]
    longest = max((len(host) for host in found), default=0)
    best = [host for host in found if len(host) == longest]
    if len(best) == 1:
        return best[0]
    what = (
        f"its name matches several machines in the log: {', '.join(sorted(best)[:4])}"
        if best
        else "its name matches no machine in the log"
    )
    raise SourceError(what, where=path, hint="name the file after its machine, such as node7.csv")


def samples_of(table: pl.DataFrame, host: str) -> Iterator[Samples]:
    """Yield a machine's samples, one series after another.

    Parameters
    ----------
    table : DataFrame
        Columns time (UTC), gpu_index, uuid, and one per metric, named as in `METRICS`. NULL means no sample.
    """
    for (gpu, uuid), part in table.group_by("gpu_index", "uuid", maintain_order=True):
        for metric in (name for name in part.columns if name in METRICS):
            known = part.select("time", metric).drop_nulls()
            if known.height:
                times, values = rises(metric, known["time"].dt.epoch("us").to_numpy(), known[metric].to_numpy())
                yield Samples(Labels(host, gpu, uuid), metric, times, values)


NO_VALUE = "samples that are not numbers (NaN, infinite, or invalid text); ignored"
_UNUSED = "series of metrics that tracekit does not read; ignored"
_SHOWN = 8


class UnusedMetrics:
    """Counts one file's series that fill no column. If none does, a note names their metrics.

    Parameters
    ----------
    opened : OpenedFile
        The file.
    """

    def __init__(self, opened: OpenedFile) -> None:
        self._path, self._sink = opened.path, opened.sink
        self._names: set[str] = set()
        self.any_used = False

    def add(self, metric: str) -> None:
        """Count a series."""
        self._sink.check("unused_telemetry_metrics", 1, None, _UNUSED, None if metric in self._names else [metric])
        self._names.add(metric)

    def end(self) -> None:
        """Add a note about the file's content if no series is used."""
        if self._names and not self.any_used:
            self._sink.note(f"{self._path} {nothing_read(self._names)}")


def nothing_read(metrics: Collection[str]) -> str:
    """Return the message for a file that contains only these metrics."""
    return f"has no metrics that tracekit reads, only {shown_names(metrics)} (docs/telemetry.md lists the metrics)"


def shown_names(names: Collection[str]) -> str:
    """List the first names in order, and the number of other names."""
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(name[:80] for name in sorted(names)[:_SHOWN]) + rest


def frame_of(con: duckdb.DuckDBPyConnection, query: str) -> pl.DataFrame:
    """Return the rows of a query, for tables of series, jobs and machines but not for samples."""
    return pl.DataFrame(pl.from_arrow(con.sql(query).to_arrow_table()))
