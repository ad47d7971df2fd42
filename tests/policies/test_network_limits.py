"""Policies of gangs, tiers and links at the limits of their input: no jobs, one GPU, too wide a gang, bad files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.policies.networks import run, talking
from tests.replay.builders import make_cluster, make_jobs
from tracekit.errors import UsageError
from tracekit.replay.assumptions.models import load_models, used_assumptions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.reviewed import Golden

POLICIES = [
    "delay-scheduling",
    "delay-scheduling,cost=oracle",
    "dally-like",
    "ffdl",
    "ffdl,place=spread",
    "ada-srsf",
    "sjf-bco-like",
    "vclos-like",
    "crux-like",
    "contention-greedy",
]


@pytest.mark.parametrize("policy", POLICIES)
def test_no_jobs(policy: str) -> None:
    assert run(make_jobs([]), make_cluster((4, 4)), f"{policy},gap=0").makespan_ms == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_one_gpu(policy: str) -> None:
    jobs = make_jobs([(0, 1, 10), (1, 2, 10), (2, 1, 5)])
    found = run(jobs, make_cluster((1,)), f"{policy},gap=0")
    # The gang of two never fits, and holds up nobody.
    assert found.end_ms.tolist() == [10_000, -1, 15_000]
    assert found.unschedulable.tolist() == [False, True, False]


@pytest.mark.parametrize("policy", POLICIES)
def test_gangs_wider_than_a_node_and_a_rack_run_and_those_wider_than_the_cluster_never(policy: str) -> None:
    jobs = make_jobs([(0, 3, 10), (100, 5, 10), (200, 8, 10), (300, 9, 10)])
    cluster = make_cluster((2, 2, 2, 2), rack=["r0", "r0", "r1", "r1"])
    found = run(jobs, cluster, f"{policy},gap=0", talking())
    assert (found.end_ms >= 0).tolist() == [True, True, True, False]
    assert found.first_start_ms.tolist()[:3] == [0, 100_000, 200_000]
    # Eight GPUs need all nodes and run as recorded.
    assert found.end_ms[2] == 210_000


@pytest.mark.parametrize("policy", POLICIES)
def test_a_gang_never_mixes_models(policy: str) -> None:
    jobs = make_jobs([(0, 3, 10), (1, 4, 10)])
    found = run(jobs, make_cluster((2, 2, 1), model=["A", "B", "B"]), f"{policy},gap=0", talking())
    assert found.unschedulable.tolist() == [False, True]
    assert found.nodes_spanned.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('links.level = "optical"', "'optical' is not in levels"),
        ("links.levels.slow.node_gbit = 0", "node_gbit"),
        ("links.oversubscription = 0", "oversubscription"),
        ("traffic.families.vgg-16.share = 0.9", "shares that do not sum to 1"),
        ("traffic.families.vgg-16.compute_s = 0", "compute_s"),
        ("traffic.families.vgg-16.message_mb = -1", "message_mb"),
        ('contention.sharing = "never"', "sharing"),
        ("contention.least = 0", "least"),
    ],
)
def test_a_bad_assumption_is_one_sentence(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=what) as error:
        load_models(file)
    assert "\n" not in str(error.value.what)


def test_the_network_is_printed(tmp_path: Path, golden: Golden) -> None:
    file = tmp_path / "own.toml"
    file.write_text('links.level = "slow"\ncontention.sharing = "duty"', encoding="utf-8")
    told = used_assumptions(load_models(file), ("M36", "M37", "M38"))
    assert "from own.toml" in told["M36"]["source"]
    golden(f"{number}: {entry['value']}" for number, entry in told.items())
