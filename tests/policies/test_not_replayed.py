"""What a replay cannot show: every entry is whole, and names only what exists."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from tests.command import run
from tracekit.policies.interface import parse_policy
from tracekit.policies.literature.not_replayed import NOT_REPLAYED, NotReplayed
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.registry import policies

if TYPE_CHECKING:
    from tests.reviewed import Golden


@pytest.mark.parametrize("system", NOT_REPLAYED, ids=lambda system: system.name)
def test_an_entry_names_only_what_exists(system: NotReplayed) -> None:
    assert all(asdict(system)[key] for key in ("name", "decides", "why", "instead", "policies", "source"))
    for text in system.policies:
        assert parse_policy(text).label
    assert set(system.assumptions) <= set(load_models().ids)
    assert all(text.endswith(".") for text in (system.why, system.instead, system.source))
    assert system.name.lower() not in policies()


def test_the_systems_of_the_field_are_reported() -> None:
    names = " ".join(system.name for system in NOT_REPLAYED)
    for title in ("ESG", "SGPRS", "Missile", "gradient scheduling", "Navigator", "Tenplex", "G-Meta", "vDNN", "RLTune"):
        assert title in names


def test_the_command_prints_them_as_table_and_json(golden: Golden) -> None:
    shown = run("policies", "--not-replayed")
    assert shown.returncode == 0
    assert all(system.why in shown.stdout for system in NOT_REPLAYED)
    told = json.loads(run("policies", "--not-replayed", "-f", "json").stdout)
    assert [row["name"] for row in told] == [system.name for system in NOT_REPLAYED]
    assert told[0]["policies"] == list(NOT_REPLAYED[0].policies)
    wrong = run("policies", "fifo", "--not-replayed")
    assert wrong.returncode == 2
    golden(wrong.stderr)
