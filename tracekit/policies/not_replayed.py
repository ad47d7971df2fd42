"""Systems of this field that a replay of jobs cannot show: why, and what can be shown instead."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NOT_REPLAYED", "NotReplayed"]


@dataclass(frozen=True)
class NotReplayed:
    """A system whose decisions lie outside what a log of jobs holds."""

    name: str
    decides: str
    """What it decides."""
    why: str
    """What a replay of jobs lacks for it."""
    instead: str
    """What can be shown in its place, and for what not to take it."""
    policies: tuple[str, ...]
    """Policies that `instead` names, as on a command line."""
    assumptions: tuple[str, ...]
    """Ids of the assumptions that `instead` changes, as in the cards."""
    source: str
    """The publication; how much of it was read."""


_BELOW_JOBS = "Requests and their batches are below the level of jobs, and a log of jobs has none of them"
_INSIDE = "It acts inside one job: no GPU changes hands, and a log of jobs has no iterations"
_LEARNED = "The rule is a trained network that is not released; another one trained here would be another policy"

NOT_REPLAYED: tuple[NotReplayed, ...] = (
    NotReplayed(
        "ESG",
        "which functions of a serverless workflow share a GPU, with which batch, to meet deadlines",
        f"{_BELOW_JOBS}; nor are workflows in it.",
        "The GPU time of functions as jobs on parts of GPUs: how many fit, never how many meet their deadline.",
        ("fgd", "bestfit"),
        (),
        "ESG (HPDC 2024); abstract read.",
    ),
    NotReplayed(
        "SGPRS",
        "how a GPU is partitioned for periodic real-time tasks",
        "Deadlines are milliseconds; a log has whole runs of hours, in whole seconds.",
        "What the partitions hold as jobs on parts of GPUs.",
        ("fgd",),
        (),
        "SGPRS, a seamless GPU partitioning real-time scheduler; abstract read, code is public.",
    ),
    NotReplayed(
        "Missile",
        "cache and PCIe shares of a service and of a batch job on one GPU",
        "Caches and buses are below what a log knows of a GPU, and a service's latency is not in it.",
        "Weaker interference between two jobs on one GPU; no latency.",
        ("sjf-bsbf", "sjf-ffs"),
        ("M1",),
        "Missile (fine-grained isolation of one GPU); abstract read, code is public.",
    ),
    NotReplayed(
        "Navigator",
        "where tasks of latency-sensitive workflows of models run, and which models stay in GPU memory",
        f"{_BELOW_JOBS}.",
        "Nothing of it; the jobs that share the cluster with such a service can be replayed on fewer GPUs (--gpus).",
        ("fifo",),
        (),
        "Navigator; not read in full.",
    ),
    NotReplayed(
        "gradient scheduling (Prophet and the like)",
        "in which order a job's gradients are sent",
        f"{_INSIDE}.",
        "Gangs that lose less speed when they are spread over nodes.",
        ("fifo,scan=skip",),
        ("M4",),
        "Prophet and its kin; abstracts read.",
    ),
    NotReplayed(
        "CASSINI",
        "by how much the iterations of jobs on one link are shifted in time against each other",
        "Shifts are parts of an iteration; a log has no iterations and no links.",
        "Gangs that lose less speed when they are spread over nodes; not which jobs fit together.",
        ("fifo,scan=skip",),
        ("M4",),
        "CASSINI (NSDI 2024); not read in full.",
    ),
    NotReplayed(
        "congestion control and multi-source broadcast",
        "rates and routes of single transfers",
        "A log of jobs has no transfers, and its replay no packets.",
        "Gangs that lose less speed when they are spread over nodes.",
        ("fifo,scan=skip",),
        ("M4",),
        "Several titles of the field; not read in full.",
    ),
    NotReplayed(
        "Tenplex",
        "how a running job's tensors move when its parallelism changes",
        f"{_INSIDE}; what changes outside is the cost of a new number of GPUs.",
        "Elastic policies with a cheaper resize.",
        ("elastic-fifo", "elastic-srjf"),
        ("M9",),
        "Tenplex (SOSP 2024); not read in full.",
    ),
    NotReplayed(
        "vDNN",
        "which of a job's tensors lie in host memory",
        f"{_INSIDE}.",
        "Jobs that share GPUs with a smaller share of memory.",
        ("sjf-ffs",),
        ("M2",),
        "vDNN (MICRO 2016); not read in full.",
    ),
    NotReplayed(
        "G-Meta",
        "how one meta-learning job is spread over GPUs",
        f"{_INSIDE}.",
        "Nothing of it; the job's recorded run time is that of the system that ran it.",
        ("recorded",),
        (),
        "G-Meta; not read in full.",
    ),
    NotReplayed(
        "Harmony; multi-agent graph learning; contention-aware learning",
        "placement, by networks trained on interference and contention",
        f"{_LEARNED}.",
        "The test of pairs that is exact for two jobs, and the same order without it: between them lies what placement "
        "by interference can change. Never the paper's result.",
        ("sjf-bsbf", "sjf-ffs"),
        ("M1",),
        "Harmony (INFOCOM 2019), arXiv 2112.13354, ICPADS 2023 (arXiv 2310.20209); abstracts read.",
    ),
    NotReplayed(
        "RLTune",
        "priorities of waiting jobs, by reinforcement learning",
        f"{_LEARNED}.",
        "Orders that know the run times, to hold a learned priority against.",
        ("ssf", "srtf"),
        ("D1",),
        "RLTune (arXiv 2512.10271); abstract read.",
    ),
)
"""What cannot be replayed, the one place where it is written."""
