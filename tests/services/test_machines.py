"""The machines beside the jobs: what they are, when they were away, and which GPUs each job held."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.services.configuration import GPUS_PER_NODE, MODELS
from tests.services.tables import ingest, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.conftest import Records
    from tracekit.trace import Trace

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def told(ran: Records, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ran.folder / "machines", folder / "logs")
    shutil.copy(ran.folder / "more-columns" / "sacct.txt", folder / "logs")
    return ingest(folder / "logs", folder / "trace")


def test_the_database_has_the_events_that_were_made(ran: Records) -> None:
    states = {"DOWN": "down", "DRAIN": "drained"}
    made = {(node, states[state], reason) for node, state, reason in ran.done.events}
    # On a busy host Slurm may have had trouble of its own.
    assert made <= {(event.node, event.state, event.reason) for event in ran.events if event.end is not None}
    assert len(made) == 3


def test_nodes_are_those_of_the_cluster_with_their_gpus(told: Trace) -> None:
    found = {
        row["node_id"]: (row["gpu_count"], row["gpu_model"], row["cpu_count"], row["memory_gib"])
        for row in rows(told, "nodes")
    }
    assert found == {node: (GPUS_PER_NODE, model, 32.0, 500.0) for node, model in MODELS.items()}


def test_every_event_of_the_database_is_reported(ran: Records, told: Trace) -> None:
    found = {
        (row["node_id"], row["start_time"], row["end_time"], row["state"], row["source_cause"])
        for row in rows(told, "node_events")
    }
    assert found == {(e.node, e.start, e.end, e.state, e.reason) for e in ran.events}


def _sampled(ran: Records) -> dict[tuple[int, str], set[tuple[int, ...]]]:
    """Return the GPUs that each sampled job held on each machine, as scontrol printed them."""
    found: dict[tuple[int, str], set[tuple[int, ...]]] = {}
    for line in ran.done.samples:
        for nodes, index in re.findall(r" Nodes=(\S+) CPU_IDs=\S+ Mem=\d+ GRES=gpu:\w+:\d+\(IDX:([\d,-]+)\)", line):
            number = re.search(r"\bJobId=(\d+)", line)
            assert number is not None
            gpus = tuple(
                gpu
                for low, _, high in (part.partition("-") for part in index.split(","))
                for gpu in range(int(low), int(high or low) + 1)
            )
            for node in re.findall(r"node\d", nodes):
                if (int(number[1]), node) not in ran.unrecorded:
                    found.setdefault((int(number[1]), node), set()).add(gpus)
    return found


def test_the_database_has_nearly_every_run_that_a_machine_wrote_down(ran: Records) -> None:
    assert len({number for number, _ in ran.unrecorded}) <= 2


def test_scontrol_and_the_machines_agree_on_who_held_which_gpu(ran: Records) -> None:
    held: dict[tuple[int, str], set[tuple[int, ...]]] = {}
    for span in ran.held:
        held.setdefault((span.number, span.node), set()).add(span.gpus)
    sampled = {place: gpus for place, gpus in _sampled(ran).items() if re.fullmatch(r"node\d", place[1])}
    assert len(sampled) > 20
    wrong = {place: (gpus, held.get(place)) for place, gpus in sampled.items() if not gpus <= held.get(place, set())}
    # scontrol prints machines with equal GPUs as one list.
    assert wrong == {}


def test_gpus_of_a_sampled_job_are_known_by_index(ran: Records, told: Trace) -> None:
    # A job that gave a machine back goes on from then; Slurm still states its first start.
    held = {(s.job_id, None if ran.jobs[s.job_id].resized else s.start, s.node, s.gpus) for s in ran.held}
    known = [row for row in rows(told, "placements") if row["gpu_index"] is not None]
    wrong = []
    for row in known:
        start = None if ran.jobs[row["job_id"]].resized else row["start_time"]
        if (row["job_id"], start, row["node_id"], tuple(sorted(row["gpu_index"]))) not in held:
            wrong.append(row)
    assert wrong == []
    of_number = {run.number: run.job_id for run in ran.runs}
    sampled = {(of_number[number], node) for number, node in _sampled(ran)}
    assert sampled <= {(row["job_id"], row["node_id"]) for row in known}


def test_an_uneven_gang_is_reported_as_it_was(ran: Records, told: Trace) -> None:
    uneven = [f"tk/{number}" for number in ran.done.jobs["uneven"]]
    held = {(span.job_id, span.node): float(len(span.gpus)) for span in ran.held if span.job_id in uneven}
    found = {
        (row["job_id"], row["node_id"]): row["gpu_count"] for row in rows(told, "placements") if row["job_id"] in uneven
    }
    assert found == held
    assert any(len({gpus for (job, _), gpus in held.items() if job == name}) > 1 for name in uneven)


def test_without_samples_an_uneven_gang_is_unknown(ran: Records, tmp_path: Path) -> None:
    told = ingest(ran.folder / "more-columns", tmp_path / "trace")
    (seven, _) = ran.done.jobs["uneven"]
    counts = {row["gpu_count"] for row in rows(told, "placements") if row["job_id"] == f"tk/{seven}"}
    assert counts == {None}
