"""Pictures of replays, read back from their SVG."""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from tracekit.report.replay_pictures import plan_svg, tradeoff_svg

_RULE = re.compile(r'<line aria-label="avg_jct_s: (\d+)"[^>]* transform="translate\(([\d.]+),0\)"[^>]*stroke-dasharray')
_POINT = re.compile(r'<path aria-label="avg_jct_s: (\d+); [^"]*policy: (\w+)"[^>]* transform="translate\(([\d.]+),')


def run(policy: str, jct: float, recorded: float | None, cluster: str | None = "Venus") -> dict[str, Any]:
    row = {"trace": "logs", "cluster_name": cluster, "policy": policy, "avg_jct_s": jct, "recorded_jct_s": recorded}
    return row | {"gpu_utilization_share": jct / 10_000, "p95_queue_s": jct / 2, "jain_fairness_vc": jct / 20_000}


def drawn(*rows: dict[str, Any]) -> str:
    return tradeoff_svg(pl.DataFrame(list(rows), schema_overrides={"recorded_jct_s": pl.Float64}))


def test_the_log_is_the_dashed_line_of_a_sweep_in_its_twin() -> None:
    """It stands where a policy of the same mean stands, in each of the three pictures."""
    picture = drawn(run("twin", 4000, 3600), run("sjf", 3600, 3500), run("las", 900, 3400), run("fifo", 7200, None))
    rules, points = _RULE.findall(picture), _POINT.findall(picture)
    (same,) = {x for jct, policy, x in points if policy == "sjf"}
    assert rules == [("3600", same)] * 3
    assert len(points) == 4 * 3
    assert re.findall(r">(recorded[^<]*)</text>", picture) == ["recorded"] * 3


def test_each_cluster_has_a_line_of_its_own_with_its_name() -> None:
    picture = drawn(run("twin", 4000, 3600), run("twin", 900, 800, "Earth"), run("sjf", 700, 800, "Earth"))
    assert [jct for jct, _ in _RULE.findall(picture)] == ["3600", "800"] * 3
    assert re.findall(r">(recorded[^<]*)</text>", picture) == ["recorded: logs Venus", "recorded: logs Earth"] * 3


def test_a_sweep_without_a_twin_has_no_line() -> None:
    picture = drawn(run("fifo", 4000, None), run("sjf", 3600, None))
    assert (_RULE.findall(picture), "recorded" in picture) == ([], False)
    assert len(_POINT.findall(picture)) == 2 * 3


def test_a_plan_has_as_many_lines_as_policies_and_loads() -> None:
    """Six loads of the twin's policy, for which there are five colours."""
    waits = {"p90_wait_s": 60.0, "p90_wait_low_s": 30.0, "p90_wait_high_s": 90.0}
    rows = [{"nodes": nodes, "policy": "twin", "growth": growth, **waits} for growth in range(1, 7) for nodes in (4, 8)]
    recorded = {"nodes": 8, "p90_wait_s": 45.0}
    picture = plan_svg({"cluster": "Venus", "target": None, "recorded": recorded, "capacity": rows})
    assert picture.count("times the jobs</text>") == 5
    assert picture.count(">the log's policy</text>") == 1
    assert ">recorded</text>" in picture
