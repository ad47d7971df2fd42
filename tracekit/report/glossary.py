"""The terms that a reader of a report needs, each in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.tenant import VC

if TYPE_CHECKING:
    from tracekit.report.sections.interface import TraceFacts

__all__ = ["glossary"]


def glossary(facts: TraceFacts) -> list[tuple[str, str]]:
    """Return the terms with what they mean; the tenant is called by the site's word."""
    tenant = facts.tenant
    team = (
        "the part of the cluster that a team shares; its quota is the GPUs that it may hold"
        if tenant.one == VC.one
        else f"what tells teams apart here; the quota of {tenant.a} is what its jobs may hold at once"
    )
    return [
        ("job", "What a user submits: it starts on all its GPUs at once."),
        ("attempt", "Each run of a job; one that fails may be tried again."),
        ("gang", "The GPUs that a job needs at the same time."),
        (
            "locality",
            "How near to each other the GPUs of a gang stand; on few nodes they hardly need the network.",
        ),
        (tenant.spelled, f"{team[:1].upper()}{team[1:]}."),
        ("wait", "The time from a job's submission to its first start."),
        ("queueing delay per attempt", "The time that each attempt queued, the first and the later ones."),
        ("90th percentile, p90", "Nine values in ten are no larger."),
        ("GPU-hour", "One GPU held for an hour, whatever the job does with it."),
        ("held, used", "A GPU is held while a job has it, and used while it computes, as its driver measures it."),
        ("outage", "A time in which a node was down, drained or in maintenance."),
        ("goodput", "The part of the held GPU time that was neither start-up nor lost nor idle."),
        ("replay", "The jobs of the log, scheduled again under another policy."),
        ("completion time", "The wait and the run time of a job together."),
        ("twin", "The replay whose waits come nearest to those that the log recorded."),
        ("effect", "What a change would do to the waits that the log recorded, not to those of another replay."),
    ]
