"""Panels: which policies a name stands for, and that only they may be left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.replay.builders import make_cluster, make_jobs
from tracekit.errors import UsageError
from tracekit.replay.panels import LITERATURE, PANEL, all_of_the_literature, meant_by, standard_panel
from tracekit.replay.registry import policies
from tracekit.replay.run_policies import run_policies
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from pathlib import Path


def test_the_literature_is_every_policy_once_with_the_standard_ones_first() -> None:
    found = all_of_the_literature()
    assert found[: len(PANEL)] == PANEL
    assert {text for text in found if "," not in text} == set(policies())
    assert len(set(found)) == len(found)


def test_what_is_named_beside_a_panel_is_not_named_twice() -> None:
    meant, optional = meant_by(["srtf,overhead=helios", LITERATURE, "fifo"])
    assert meant[0] == "srtf,overhead=helios"
    assert meant[-1] == "fifo"
    assert meant.count("fifo") == 1
    assert "srtf" in optional
    assert not {"fifo", "srtf,overhead=helios"} & optional
    assert meant_by(["fifo"]) == (["fifo"], frozenset())
    assert meant_by(None) == (list(standard_panel()), frozenset(standard_panel()))


def test_what_a_panel_holds_is_left_out_where_it_cannot_run_and_what_is_named_is_not(tmp_path: Path) -> None:
    # Jobs without quotas or priorities: some policies of the literature lack what they need.
    scenario = Scenario.make(make_jobs([(0, 1, 60), (0, 1, 60)]), make_cluster([4]))
    done = run_policies(scenario, [LITERATURE], tmp_path / "out")
    compared = done.comparison.filter(done.comparison["policy"] != "recorded")["policy"].to_list()
    assert compared[0] == "fifo"
    assert set(compared) | set(done.skipped) >= set(all_of_the_literature()) - {"recorded"}
    assert done.skipped
    name, why = next(iter(done.skipped.items()))
    with pytest.raises(UsageError) as error:
        run_policies(scenario, [name], tmp_path / "named")
    assert str(error.value) == why
