"""Names of the metrics of GPU monitors, and the column that each fills.

Names: NVIDIA's dcgm-exporter (its field list etc/default-counters.csv), the exporter of Princeton's Jobstats
(nvidia_gpu_*), utkuozdemir's nvidia_gpu_exporter (nvidia_smi_*), the Alliance's slurm-job-exporter (slurm_job_*), AMD's
device_metrics_exporter (gpu_*, with the prefix amd_ in some clusters) and omnistat (rocm_*), and the conventions of
OpenTelemetry (hw.gpu.*), in which Prometheus replaces dots by underscores and appends the unit.
"""

from __future__ import annotations

from typing import NamedTuple

_GIB = 2.0**-30
_MIB = 2.0**-10

XID = "xid"
"""The metric with the number of the last error; it fills node_events."""


class Metric(NamedTuple):
    """The column of gpu_utilization that a metric fills."""

    column: str
    factor: float = 1.0
    """Factor from the unit of the metric to the unit of the column."""
    rank: int = 0
    """If two metrics fill the same column for one GPU, the one with the lower rank is used."""
    is_counter: bool = False
    """Whether it is a counter, such as energy; the column then gets its increase per second."""


MOST = {
    "utilization_pct": 101.0,
    "memory_used_gib": 100_000.0,
    "power_w": 100_000.0,
    "sm_active_pct": 101.0,
    "tensor_active_pct": 101.0,
    XID: 100_000.0,
}
"""Maximum valid values; if a GPU has no such sensor, DCGM reports a 'blank' number in the billions. Shares may slightly
exceed 100 % because their interval is rounded.
"""

METRICS = {
    "DCGM_FI_DEV_GPU_UTIL": Metric("utilization_pct"),
    # Share of time in which the graphics or compute engine was active; the only utilization metric for MIG slices.
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
"""The metrics that are read, by name."""

NODE_METRICS = ("kube_node_status_condition", "kube_node_spec_unschedulable")
"""Metrics of kube-state-metrics that fill node_events: a Kubernetes node's conditions, and whether it is cordoned."""

DIVIDED = Metric("utilization_pct", rank=2)
"""Utilization of a divided GPU (MIG) and of its slices, which the driver does not measure. The engine-active share
takes precedence; if the utilization is never above 0, it is unknown.
"""

COLUMNS = tuple(dict.fromkeys(m.column for m in METRICS.values() if m.column != XID))
"""Columns of gpu_utilization that telemetry fills."""

OWN = {f"gpu_utilization.{column}": Metric(column, rank=-1) for column in COLUMNS}
"""Metrics for columns already filled by the log or a mapping file; all their values are accepted."""
