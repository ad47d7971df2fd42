"""Systems of this field that a replay of jobs cannot show: why, and what it can show instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NotReplayed:
    """A system whose decisions a log of jobs does not contain."""

    name: str
    decides: str
    """What it decides."""
    why: str
    """What a replay of jobs lacks for it."""
    instead: str
    """What a replay can show instead, and what that does not prove."""
    policies: tuple[str, ...]
    """Policies that `instead` names, as on a command line."""
    assumptions: tuple[str, ...]
    """Ids of the assumptions that `instead` changes, as in the cards."""
    source: str
    """The publication; how much of it was read."""


_BELOW_JOBS = "Requests and their batches are smaller than jobs, and a log of jobs does not record them"
_INSIDE = "It acts inside one job: no GPU changes hands, and a log of jobs has no iterations"
_LEARNED = (
    "The rule is a trained network that is not released; if we trained another one here, it would be another policy"
)

NOT_REPLAYED: tuple[NotReplayed, ...] = (
    NotReplayed(
        "ESG",
        "which functions of a serverless workflow share a GPU, and with which batch, to meet deadlines",
        f"{_BELOW_JOBS}; it does not record workflows either.",
        "The GPU time of functions, as jobs on parts of GPUs: you see how many fit, not how many meet their deadline.",
        ("fgd", "bestfit"),
        (),
        "ESG (HPDC 2024); abstract read.",
    ),
    NotReplayed(
        "SGPRS",
        "how a GPU is partitioned for periodic real-time tasks",
        "Deadlines are milliseconds; a log has whole runs of hours, in whole seconds.",
        "The GPU share of the partitions, as jobs on parts of GPUs.",
        ("fgd",),
        (),
        "SGPRS, a seamless GPU partitioning real-time scheduler; abstract read, code is public.",
    ),
    NotReplayed(
        "Missile",
        "the cache and PCIe shares of a service and a batch job on one GPU",
        "A log does not record the caches and buses of a GPU, or the latency of a service.",
        "Weaker interference between two jobs on one GPU; no latency.",
        ("sjf-bsbf", "sjf-ffs"),
        ("M1",),
        "Missile (fine-grained isolation of one GPU); abstract read, code is public.",
    ),
    NotReplayed(
        "Navigator",
        "where the tasks of latency-sensitive model workflows run, and which models stay in GPU memory",
        f"{_BELOW_JOBS}.",
        "Nothing of the system itself. You can replay the jobs that share the cluster with such a service on "
        "fewer GPUs (--gpus).",
        ("fifo",),
        (),
        "Navigator; not read in full.",
    ),
    NotReplayed(
        "gradient scheduling (Prophet and the like)",
        "the order in which a job's gradients are sent",
        f"{_INSIDE}.",
        "Gangs that lose less speed when they are spread over nodes.",
        ("fifo,scan=skip",),
        ("M4",),
        "Prophet and similar systems; abstracts read.",
    ),
    NotReplayed(
        "CASSINI",
        "how far the iterations of jobs on one link are shifted in time against each other",
        "Shifts are parts of an iteration; a log has no iterations and no links.",
        "Gangs that lose less speed when they are spread over nodes, but not which jobs fit together.",
        ("fifo,scan=skip",),
        ("M4",),
        "CASSINI (NSDI 2024); not read in full.",
    ),
    NotReplayed(
        "congestion control and multi-source broadcast",
        "rates and routes of single transfers",
        "A log of jobs has no transfers, and a replay has no packets.",
        "Gangs that lose less speed when they are spread over nodes.",
        ("fifo,scan=skip",),
        ("M4",),
        "Several titles of the field; not read in full.",
    ),
    NotReplayed(
        "Tenplex",
        "how a running job's tensors move when its parallelism changes",
        f"{_INSIDE}; outside the job only the cost of resizing changes.",
        "Elastic policies with a cheaper resize.",
        ("elastic-fifo", "elastic-srjf"),
        ("M9",),
        "Tenplex (SOSP 2024); not read in full.",
    ),
    NotReplayed(
        "vDNN",
        "which of a job's tensors are kept in host memory",
        f"{_INSIDE}.",
        "Jobs that share GPUs and need a smaller share of memory.",
        ("sjf-ffs",),
        ("M2",),
        "vDNN (MICRO 2016); not read in full.",
    ),
    NotReplayed(
        "G-Meta",
        "how one meta-learning job is spread over GPUs",
        f"{_INSIDE}.",
        "Nothing. The job's recorded run time comes from the system that ran it.",
        ("recorded",),
        (),
        "G-Meta; not read in full.",
    ),
    NotReplayed(
        "Harmony; multi-agent graph learning; contention-aware learning",
        "placement, by networks trained on interference and contention",
        f"{_LEARNED}.",
        "The pair test that is exact for two jobs, and the same order without it. The difference between them is "
        "what placement by interference can change. It is never the paper's result.",
        ("sjf-bsbf", "sjf-ffs"),
        ("M1",),
        "Harmony (INFOCOM 2019), arXiv 2112.13354, ICPADS 2023 (arXiv 2310.20209); abstracts read.",
    ),
    NotReplayed(
        "RLTune",
        "priorities of waiting jobs, by reinforcement learning",
        f"{_LEARNED}.",
        "Orders that know the run times, to compare with a learned priority.",
        ("ssf", "srtf"),
        ("D1",),
        "RLTune (arXiv 2512.10271); abstract read.",
    ),
)
"""The systems that cannot be replayed; this is the only list of them."""
