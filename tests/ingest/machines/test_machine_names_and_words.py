"""Which machine a name means, and what states and reasons mean."""

from __future__ import annotations

import pytest

from tracekit import schema
from tracekit.ingest.companion import all_companions
from tracekit.ingest.machines._slurm import fitness, is_no_machine, is_node_state
from tracekit.ingest.node_events import CAUSES, Machine, cause_of, machine_ids


@pytest.mark.parametrize(
    ("known", "found", "ids", "doubtful"),
    [
        # The same name; a name with its domain; a new one.
        ([("n1", "c"), ("n2.x.org", "c")], [("n1", None), ("n2", None), ("n9", None)], ["n1", "n2.x.org", "n9"], []),
        # Several clusters: the file's cluster decides, or the name if only one has it.
        ([("a/n1", "a"), ("b/n1", "b"), ("b/n2", "b")], [("n1", "b"), ("n2", None)], ["b/n1", "b/n2"], []),
        ([("a/n1", "a"), ("b/n1", "b")], [("n1", None)], [], ["n1"]),
        # Of a cluster that the log does not know.
        ([("n1", "a")], [("n1", "z")], ["z/n1"], []),
        # Addresses have no short name, and two names with one short name mean two machines.
        ([("10.0.0.1", None)], [("10.0.0.2", None)], ["10.0.0.2"], []),
        ([("n1", None)], [("n1.a", None), ("n1.b", None)], ["n1.a", "n1.b"], []),
        ([], [("n1", "c")], ["n1"], []),
    ],
)  # fmt: skip
def test_a_name_means_a_machine(
    known: list[tuple[str, str | None]], found: list[tuple[str, str | None]], ids: list[str], doubtful: list[str]
) -> None:
    made, unclear = machine_ids([Machine(*k) for k in known], [Machine(*f) for f in found])
    assert [made[Machine(*f)] for f in found if Machine(*f) in made] == ids
    assert unclear == doubtful


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("DOWN", "down"),
        ("DOWN*", "down"),
        ("down*+drain", "down"),
        ("IDLE+DRAIN", "drained"),
        ("DRAINING@", "drained"),
        ("drng", "drained"),
        ("FAILING", "drained"),
        ("MAINT", "maintenance"),
        ("IDLE+REBOOT_ISSUED", "maintenance"),
        ("DRAIN+MAINT", "maintenance"),
        ("idle*", None),
        ("idle~", None),
        ("MIXED+PLANNED", None),
        ("whatever", None),
    ],
)
def test_states_of_slurm(words: str, state: str | None) -> None:
    assert fitness(words) == state
    assert fitness(words.split("+")) == state
    assert is_node_state(words) == (words != "whatever")
    assert state is None or state in schema.common("node_events").column("state").enum


def test_names_for_the_future_are_not_machines() -> None:
    assert is_no_machine("FUTURE")
    assert not is_no_machine("idle")
    assert not is_node_state("RUNNING")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("ECC errors GPU 2", "gpu memory"),
        ("Xid 94 on GPU 3", "gpu memory"),
        ("XID 13", "xid"),
        ("gres/gpu count reported lower than configured (7 < 8)", "gpu lost"),
        ("NVLink fault, ticket 7", "nvlink"),
        ("replace cable port 3", "network cable"),
        ("mlx5_0 link down", "nic"),
        ("PSU 2 failed", "power"),
        ("fan 4 dead", "fan"),
        ("Not responding", "host"),
        ("lustre mount hangs", "file system"),
        ("Kill task failed", "software"),
        ("firmware upgrade", "maintenance"),
        ("ask bob", "unknown"),
        ("none", None),
        ("", None),
        (None, None),
        ("x" * 10_000_000 + " fan", "unknown"),
    ],
)
def test_reasons_have_a_cause(text: str | None, cause: str | None) -> None:
    assert cause_of(text) == cause
    assert cause is None or cause in CAUSES


def test_causes_are_the_words_of_the_documentation() -> None:
    assert set(CAUSES) == {
        *("gpu memory", "gpu lost", "xid", "nvlink", "network cable", "nic", "power", "fan", "host", "file system"),
        *("software", "maintenance", "unknown"),
    }


def test_every_kind_of_file_has_a_name_and_a_title() -> None:
    kinds = [kind for kind in all_companions() if ".machines." in type(kind).__module__]
    assert [kind.name for kind in kinds] == [
        *("kubernetes-nodes", "sacctmgr", "scontrol", "scontrol-jobs", "sinfo", "slurm-json"),
    ]
    assert all(kind.title for kind in kinds)
