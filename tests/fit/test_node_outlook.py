"""What a fit foretells of node failures: worked by hand, planted in both directions, and InfiniteHBD's last months."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from tools.node_failure_scores import FIGURES, Spans, figures_of, held_out_failures, table, within_page
from tracekit.errors import UsageError
from tracekit.fit.choice import Effort
from tracekit.fit.node_failures import FailureLog, fit_failure_log
from tracekit.fit.synthetic import drawn_until_failure
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

DAY, HOUR = 86_400, 3600
BEGIN = np.datetime64("2020-01-01")
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "infinitehbd"


def spans_of(rows: list[tuple[int, int, float, float]]) -> Spans:
    draw, node, since, until = (np.array(column) for column in zip(*rows, strict=True))
    return Spans(draw, node, since.astype(float) * HOUR, until.astype(float) * HOUR)


def test_figures_by_hand() -> None:
    """Two draws of three nodes in ten hours."""
    found = figures_of(
        spans_of(
            [
                (0, 0, 1, 3),
                (0, 0, 2, 4),  # overlaps: one outage of 3 h
                (0, 0, 4, 5),  # touches: 4 h
                (0, 1, -2, 3),  # away from the start: 3 h, no outage that begins
                (0, 1, 3, 4),  # touches it
                (0, 2, 9, np.inf),  # 1 h
                (0, 2, 11, 12),  # after the end
                (1, 2, 0, 0),  # of no length
                (1, 1, -3, -1),  # over before the start
            ]
        ),
        3,
        3,
        10 * HOUR,
    )
    assert {name: list(values) for name, values in found.items()} == {
        "outages": [2, 1, 0],
        "node_hours_away": [4 + 4 + 1, 0, 0],
        "availability_share": [pytest.approx(21 / 30), 1, 1],
    }


ROW = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(-4, 14), st.integers(0, 9))


@given(st.lists(ROW, max_size=25))
def test_figures_agree_with_hours_looked_at_one_by_one(rows: list[tuple[int, int, int, int]]) -> None:
    spans = [(d, n, s, s + length) for d, n, s, length in rows]
    if not spans:
        return
    found = figures_of(spans_of([tuple(map(int, row)) for row in spans]), 2, 3, 10.0 * HOUR)  # type: ignore[misc]
    for draw in range(2):
        away, begins = 0, 0
        for node in range(3):
            own = [(s, e) for d, n, s, e in spans if (d, n) == (draw, node) and e >= 0 and s < 10]
            away += sum(any(s <= hour < e for s, e in own) for hour in range(10))
            # A begin counts where nothing of the node covers or touches it from before.
            firsts = {s for s, _ in own if s >= 0}
            begins += sum(not any(s < first <= e for s, e in own) for first in firsts)
        assert found["node_hours_away"][draw] == pytest.approx(away)
        assert found["outages"][draw] == begins
        assert found["availability_share"][draw] == pytest.approx(1 - away / 30)


@pytest.mark.parametrize(
    ("family", "parameters", "survival"),
    [
        ("expon", {"scale": 100.0}, lambda x: np.exp(-x / 100)),
        ("weibull_min", {"c": 0.5, "scale": 100.0}, lambda x: np.exp(-np.sqrt(x / 100))),
        (
            "hyperexpon_2",
            {"weight_1": 0.7, "scale_1": 20.0, "weight_2": 0.3, "scale_2": 500.0},
            lambda x: 0.7 * np.exp(-x / 20) + 0.3 * np.exp(-x / 500),
        ),
    ],
)
@pytest.mark.parametrize("age", [0.0, 60.0, 1e5])
def test_a_node_that_has_worked_goes_on_as_the_law_says(
    family: str, parameters: dict[str, float], survival: Callable[[Any], Any], age: float
) -> None:
    entry = {"chosen": family, "families": [{"family": family, "parameters": parameters}]}
    drawn = drawn_until_failure(entry, np.full(20_000, age), np.random.default_rng(3))
    if age > 1e4 and family == "hyperexpon_2":
        law: Any = lambda x: 1 - np.exp(-x / 500)  # noqa: E731 -- the other part is long over
    elif age > 1e4 and family == "expon":
        law = lambda x: 1 - np.exp(-x / 100)  # noqa: E731 -- the age says nothing
    else:
        law = lambda x: 1 - survival(age + x) / survival(age)  # noqa: E731 -- as in the other cases
    assert stats.kstest(drawn, law).pvalue > 0.001


def planted(rng: np.random.Generator, *, later: float = 1.0, nodes: int = 60, days: int = 300) -> list[dict[str, Any]]:
    """Return failures without memory every 40 days, of half a day each; from day 210 on `later` times as many."""
    events = []
    for node in range(nodes):
        now = 0.0
        while True:
            left = float(rng.exponential(40 * DAY))
            turn = 210 * DAY - now
            now = now + left if left < turn else max(now, 210 * DAY) + (left - max(turn, 0)) / later
            if now >= days * DAY:
                break
            back = now + float(rng.lognormal(np.log(DAY / 2), 0.5))
            since, until = (str(BEGIN + np.timedelta64(round(t), "s")) for t in (now, back))
            events.append({"node_id": f"n{node}", "start_time": since, "end_time": until, "state": "down"})
            events[-1] |= {"cause": "fan", "source": "test"}
            now = back
    return events


# Of 8 with a chance of 95 % fewer than 5, and of 24 fewer than 19, have a chance below 0.1 %.
@pytest.mark.parametrize(("logs", "least"), [(4, 5), pytest.param(12, 19, marks=pytest.mark.thorough)])
def test_intervals_hold_what_comes_where_nodes_go_on_as_before(
    make_trace: Callable[..., Trace], logs: int, least: int
) -> None:
    held, widths = 0, []
    for seed in range(logs):
        trace = make_trace(node_events=planted(np.random.default_rng(seed)))
        found = held_out_failures(trace, seed=seed, draws=300, fits=3)
        inside = [found.predicted[n].low <= found.came[n] <= found.predicted[n].high for n in FIGURES[:2]]
        held += sum(inside)
        outages = found.predicted["outages"]
        widths.append((outages.high - outages.low) / (2 * 1.96 * np.sqrt(outages.middle)))
        assert found.days == pytest.approx(90, rel=0.02)
    assert held >= least
    # No interval is needlessly wide.
    assert 0.8 < np.median(widths) < 1.6


def test_what_comes_is_outside_where_nodes_fail_more_often_than_before(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(node_events=planted(np.random.default_rng(1), later=2.5))
    found = held_out_failures(trace, draws=300, fits=3)
    assert found.came["outages"] > found.predicted["outages"].high
    assert found.came["availability_share"] < found.predicted["availability_share"].low


def test_nodes_away_at_the_cut_come_back(make_trace: Callable[..., Trace]) -> None:
    """All failures last five days; ten nodes more fail one day before day 210, where the first part ends."""
    five, day = np.timedelta64(5 * DAY, "s"), np.timedelta64(DAY, "s")
    events = planted(np.random.default_rng(2))
    for event in events:
        event["end_time"] = str(np.datetime64(event["start_time"]) + five)
    last = max(np.datetime64(event["end_time"]) for event in events)
    first = min(np.datetime64(event["start_time"]) for event in events)
    cut = first + np.timedelta64(int(0.7 * ((last - first) / np.timedelta64(1, "s"))), "s")
    away = [
        {**events[0], "node_id": f"x{n}", "start_time": str(cut - day), "end_time": str(cut - day + five)}
        for n in range(10)
    ]
    found = held_out_failures(make_trace(node_events=events + away), 0.7, draws=200, fits=2)
    without = held_out_failures(make_trace(node_events=events), 0.7, draws=200, fits=2)
    assert found.came["node_hours_away"] - without.came["node_hours_away"] == pytest.approx(10 * 4 * 24, rel=0.001)
    more = found.predicted["node_hours_away"].middle - without.predicted["node_hours_away"].middle
    # Four days each, and five days for each time that ten nodes fail once more in 90 days, twice on average.
    assert 10 * 4 * 24 < more < 10 * 4 * 24 + 10 * 3 * 5 * 24


def test_too_little_to_learn_from_is_reported(make_trace: Callable[..., Trace]) -> None:
    events = planted(np.random.default_rng(1))[:4]
    with pytest.raises(UsageError, match="the first part of the log has too few failures to fit"):
        held_out_failures(make_trace(node_events=events))
    with pytest.raises(UsageError, match="between 0 and 1, not 1"):
        held_out_failures(make_trace(node_events=events), 1.0)


@pytest.fixture(scope="module")
def infinitehbd(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    if not DATA.is_dir():
        pytest.skip("the data of InfiniteHBD are not here")
    return ingest_logs(DATA, tmp_path_factory.mktemp("infinitehbd") / "trace")


def test_the_fit_of_real_failures_has_the_likelihood_that_other_code_finds(infinitehbd: Trace) -> None:
    """Times to failure made by a loop over nodes, the likelihood written down, and another optimizer."""
    log = FailureLog.of(infinitehbd)
    ended, cut = [], []
    begin, end = log.window.begin / 1e6, log.window.end / 1e6
    by_node: dict[str, list[tuple[float, float]]] = {}
    for name, since, until in log.failures.sort("since", "until").select("node_id", "since", "until").rows():
        by_node.setdefault(name, []).append((since / 1e6, until / 1e6))
    for own in by_node.values():
        back = begin
        for since, until in own:
            if since > back:
                ended.append(since - back)
            back = max(back, until)
        if back < end:
            cut.append(end - back)
    cut += [end - begin] * (400 - len(by_node))
    t, c = np.array(ended), np.array(cut)

    def weibull(p: Any) -> float:
        k, s = np.exp(p)
        return -float((np.log(k / s) + (k - 1) * np.log(t / s) - (t / s) ** k).sum() - ((c / s) ** k).sum())

    def two(p: Any) -> float:
        w, (a, b) = 1 / (1 + np.exp(-p[0])), np.exp(p[1:])
        density = w / a * np.exp(-t / a) + (1 - w) / b * np.exp(-t / b)
        return -float(np.log(density).sum() + np.log(w * np.exp(-c / a) + (1 - w) * np.exp(-c / b)).sum())

    groups = fit_failure_log(log, 0, Effort(replicates=0))["groups"]
    fitted = {f["family"]: f for f in groups[0]["until_failure"]["families"]}
    mean = (t.sum() + c.sum()) / t.size
    assert fitted["expon"]["parameters"]["scale"] == pytest.approx(mean, rel=1e-4)
    assert fitted["expon"]["log_likelihood"] == pytest.approx(-t.size * (np.log(mean) + 1), abs=0.1)
    # Times of seconds count as intervals in the fit, and as they are here.
    for name, fall, start in (
        ("weibull_min", weibull, [-1.0, np.log(mean)]),
        ("hyperexpon_2", two, [-2.0, np.log(1e4), np.log(mean)]),
    ):
        found = optimize.minimize(fall, start, method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-7})
        assert fitted[name]["log_likelihood"] == pytest.approx(-found.fun, abs=0.5), name
    assert fitted["weibull_min"]["parameters"]["c"] == pytest.approx(0.387, abs=0.001)


def test_the_last_months_of_infinitehbd(infinitehbd: Trace) -> None:
    """Recounted by a walk over hours and begins; the intervals are those of the page, made with fewer draws."""
    found = held_out_failures(infinitehbd, 0.8, draws=200, fits=4)
    log = FailureLog.of(infinitehbd)
    cut = log.window.begin + round(0.8 * (log.window.end - log.window.begin))
    seconds = (log.window.end - cut) / 1e6
    away = begins = 0.0
    for _, own in log.failures.sort("since", "until").group_by("node_id", maintain_order=True):
        last = -np.inf
        for since, until in own.select("since", "until").rows():
            a, b = (since - cut) / 1e6, (until - cut) / 1e6
            if a >= 0 and a > last:
                begins += 1
            away += max(b - max(a, last, 0.0), 0.0)
            last = max(last, b)
    assert found.came["outages"] == begins
    assert found.came["node_hours_away"] == pytest.approx(away / HOUR)
    assert found.came["availability_share"] == pytest.approx(1 - away / (400 * seconds))
    outages = found.predicted["outages"]
    assert outages.low < found.came["outages"] < outages.high
    assert found.predicted["availability_share"].low == pytest.approx(0.965, abs=0.01)
    page = within_page(
        "a\n<!-- node failure scores -->\nold\n<!-- end of node failure scores -->\nb\n", list(table([found]))
    )
    assert page.startswith("a\n<!-- node failure scores -->\n\n| learned from |")
    assert "old" not in page
    assert page.endswith("<!-- end of node failure scores -->\nb\n")
