"""Systems that a job replay cannot show, with the reasons and what a replay can show instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NotReplayed:
    """A system whose decisions a job log does not record."""

    name: str
    decides: str
    """The decisions of the system."""
    why: str
    """The data that a job replay would need to show the system."""
    instead: str
    """What a replay can show instead, and its limits."""
    policies: tuple[str, ...]
    """Policies mentioned in `instead`, as on a command line."""
    assumptions: tuple[str, ...]
    """IDs, as on the cards, of the assumptions that `instead` changes."""
    source: str
    """The publication, and how much of it we read."""


_BELOW_JOBS = "A job log does not record requests and batches, which are smaller than jobs"
_INSIDE = "The system acts inside one job: no GPUs move between jobs, and a job log does not record iterations"
_LEARNED = "The rule is a trained network that was not released; a network trained by us would be another policy"

NOT_REPLAYED: tuple[NotReplayed, ...] = (
    NotReplayed(
        "ESG",
        "which functions of a serverless workflow share a GPU, and with which batch, to meet deadlines",
        f"{_BELOW_JOBS}, or workflows.",
        "The GPU time of functions, replayed as jobs on fractions of GPUs: how many fit, not how many meet their "
        "deadline.",
        ("fgd", "bestfit"),
        (),
        "ESG (HPDC 2024); abstract read.",
    ),
    NotReplayed(
        "SGPRS",
        "how a GPU is partitioned for periodic real-time tasks",
        "Deadlines are in milliseconds, but a log records runs that take hours, in whole seconds.",
        "The GPU shares of the partitions, replayed as jobs on fractions of GPUs.",
        ("fgd",),
        (),
        "SGPRS, a seamless GPU partitioning real-time scheduler; abstract read, code is public.",
    ),
    NotReplayed(
        "Missile",
        "the cache and PCIe shares of a service and a batch job on one GPU",
        "A log does not record a GPU's caches and buses, or a service's latency.",
        "Weaker interference between two jobs on one GPU, but not latency.",
        ("sjf-bsbf", "sjf-ffs"),
        ("M1",),
        "Missile (fine-grained isolation of one GPU); abstract read, code is public.",
    ),
    NotReplayed(
        "Navigator",
        "where the tasks of latency-sensitive model workflows run, and which models stay in GPU memory",
        f"{_BELOW_JOBS}.",
        "Nothing about the system itself. You can replay the jobs that share a cluster with such a service on fewer "
        "GPUs (--gpus).",
        ("fifo",),
        (),
        "Navigator; not read in full.",
    ),
    NotReplayed(
        "gradient scheduling (Prophet and similar)",
        "the order in which a job's gradients are sent",
        f"{_INSIDE}.",
        "Gangs that lose less speed when they are spread over nodes.",
        ("fifo,scan=skip",),
        ("M4",),
        "Prophet and similar systems; abstracts read.",
    ),
    NotReplayed(
        "CASSINI",
        "how far the iterations of jobs on one link are shifted in time",
        "Shifts are fractions of an iteration, but a log records no iterations and no links.",
        "Gangs that lose less speed when they are spread over nodes, but not which jobs fit together.",
        ("fifo,scan=skip",),
        ("M4",),
        "CASSINI (NSDI 2024); not read in full.",
    ),
    NotReplayed(
        "congestion control and multi-source broadcast",
        "rates and routes of single transfers",
        "A job log records no transfers, and a replay simulates no packets.",
        "Gangs that lose less speed when they are spread over nodes.",
        ("fifo,scan=skip",),
        ("M4",),
        "Several papers of the field; not read in full.",
    ),
    NotReplayed(
        "Tenplex",
        "how a running job's tensors move when its parallelism changes",
        f"{_INSIDE}. Outside the job, only the cost of resizing changes.",
        "Elastic policies with cheaper resizing.",
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
        "Nothing, because the job's recorded run time comes from the system that ran it.",
        ("recorded",),
        (),
        "G-Meta; not read in full.",
    ),
    NotReplayed(
        "Harmony; multi-agent graph learning; contention-aware learning",
        "placement, by neural networks trained on interference and contention",
        f"{_LEARNED}.",
        "The pair test that is exact for two jobs, and the same order without it. Their difference shows what "
        "interference-aware placement can change, but does not reproduce the paper's result.",
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
"""The only list of systems that cannot be replayed."""
