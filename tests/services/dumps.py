"""Export from the services what an operator would, in the forms that sites use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.services.daemons import Services

__all__ = ["README_COLUMNS", "VARIANTS", "dump_machines", "dump_sacct", "sacct"]

README_COLUMNS = (
    "JobID,JobIDRaw,Cluster,Submit,Eligible,Start,End,State,Elapsed,Timelimit,AllocTRES,ReqTRES,NNodes,NodeList,"
    "Account,Partition,QOS,User,Priority"
)
_MORE = (
    f"{README_COLUMNS},JobName,Reason,Reserved,Suspended,ExitCode,Flags,NTasks,MaxRSS,TotalCPU,TRESUsageInAve,"
    "TRESUsageInTot"
)
# Fields that each kind of dump requests from sacct, and the time format.
_TEXT: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "readme-columns": (README_COLUMNS, ("--parsable2",), ""),
    "more-columns": (_MORE, ("--parsable2",), ""),
    "all-columns": ("ALL", ("--parsable2",), ""),
    "headerless": (README_COLUMNS, ("--parsable2", "--noheader"), ""),
    "delimiter": (_MORE, ("--parsable2", "--delimiter=;"), ""),
    "epoch-times": (README_COLUMNS, ("--parsable2",), "%s"),
    "offset-times": (README_COLUMNS, ("--parsable2",), "%Y-%m-%dT%H:%M:%S%z"),
}
VARIANTS = (*_TEXT, "json")
"""The kinds of dumps of the same accounting."""


def sacct(services: Services, *options: str, jobs: Iterable[str] = (), time_format: str = "") -> str:
    """Return sacct's output on all users' jobs, or on the named jobs, since yesterday."""
    chosen = ("--jobs", ",".join(jobs)) if jobs else ("--starttime", "now-1day", "--endtime", "now+1hour")
    command = ("sacct", "--allusers", "--duplicates", *chosen, *options)
    return services.run(*command, seconds=120, time_format=time_format)


def dump_sacct(services: Services, folder: Path, variants: Iterable[str] = VARIANTS, jobs: Iterable[str] = ()) -> None:
    """Write each variant to a separate folder."""
    jobs = tuple(jobs)
    for variant in variants:
        (folder / variant).mkdir(parents=True)
        if variant == "json":
            _write(folder / variant / "sacct.json", sacct(services, "--json", jobs=jobs))
            continue
        columns, options, time_format = _TEXT[variant]
        text = sacct(services, *options, f"--format={columns}", jobs=jobs, time_format=time_format)
        _write(folder / variant / "sacct.txt", text)


def dump_machines(services: Services, folder: Path, samples: Iterable[str] = ()) -> None:
    """Write the machine lists, the machines' events, and their GPUs allocated to running jobs."""
    folder.mkdir(parents=True)
    for name, command in (
        ("scontrol-nodes.txt", ("scontrol", "show", "nodes")),
        ("sinfo-N.psv", ("sinfo", "-N", "-o", "%N|%t|%T|%G|%c|%m|%f|%E|%H|%u|%P")),
        ("sinfo.json", ("sinfo", "--json")),
        ("sacctmgr-event.psv", ("sacctmgr", "show", "event", "-p", "start=now-1day")),
    ):
        _write(folder / name, services.run(*command))
    if samples:
        _write(folder / "scontrol-show-job-d.txt", "\n".join([*samples, ""]))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
