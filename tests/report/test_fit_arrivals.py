"""The fitted arrivals in a report: a rate through the week, and whether jobs come in bursts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.report.answering import answered
from tracekit.fit.arrivals import HOURS_UNKNOWN
from tracekit.fit.model import WorkloadModel
from tracekit.report.fit_answers import fitted_answers
from tracekit.report.fit_arrivals import DAYS, PROCESS, process_answer, rate_answer
from tracekit.report.fit_curves import growth_factor, half_days
from tracekit.report.sections.interface import finding, panels

if TYPE_CHECKING:
    from tracekit.answer import Answer

BIC = {"constant": 1663.1, "hour_of_day": 1540.5, "hour_of_week": 2321.4}
TESTS = {
    "dispersion_of_hourly_counts": 1.19,
    "p_dispersion": 0.002,
    "squared_variation_of_gaps": 1.46,
    "p_variation": 0.3,
    "level": 0.01,
}
GAMMA = {"a": 0.92, "scale": 1.08, "least": 0.001}
MMPP = {"quiet_rate": 0.25, "busy_rate": 2.5, "to_busy": 0.125, "to_quiet": 0.5}


def _model(rate: dict[str, Any] | None = None, *, known: bool = True, **given: Any) -> WorkloadModel:
    whole = {
        "kind": "hour_of_day",
        "per_hour": 1.0,
        "profile": [2.0] + [22 / 23] * 23,
        "trend_per_day": 0.0,
        "bic": BIC,
    }
    arrivals = {
        "process": "gamma_renewal",
        "why": "w",
        "days": 28.0,
        "step_s": 1.0,
        "start": 1_507_507_200,
        "timezone": "UTC",
        "tests": TESTS,
        "candidates": [
            {"process": "poisson", "parameters": {}, "bic": 1570.0},
            {"process": "gamma_renewal", "parameters": GAMMA, "bic": 1579.683},
            {"process": "mmpp", "parameters": MMPP, "bic": 1589.997},
        ],
        "rate": whole | (rate or {}),
    }
    return WorkloadModel(
        {
            "source": {"hour_of_day_known": known},
            "effort": {"bootstrap_replicates": 0},
            "arrivals": arrivals | given,
            "run_times": [],
            "notes": [],
        }
    )


def _rate(model: WorkloadModel) -> Answer:
    return answered(rate_answer(model))


def _process(model: WorkloadModel) -> Answer:
    return answered(process_answer(model))


def _said(result: Any) -> str:
    said = finding(result.name, result.frame.to_dicts())
    assert said is not None
    return said


def test_a_rate_by_hour_of_day_claims_nothing_of_the_days() -> None:
    batch, kind = _rate(_model()).notes
    assert batch == "a batch is all jobs that were submitted in the same second"
    assert kind == (
        "the fitted rate is the same on every day: the log holds too little evidence for a rate of its own for each"
        " hour of the week (its BIC is higher). That does not show that all days are alike: compare the points with"
        " the line"
    )


@pytest.mark.parametrize(
    ("rate", "days", "note"),
    [
        (
            {"kind": "hour_of_day", "bic": {k: BIC[k] for k in ("constant", "hour_of_day")}},
            10.0,
            (
                "the fitted rate is the same on every day: the log is shorter than the 14 days that a rate of its own"
                " for each hour of the week needs"
            ),
        ),
        (
            {"kind": "constant", "profile": [1.0], "bic": {"constant": 1.0}},
            1.5,
            (
                "the fitted rate is the same at every hour: the log is shorter than the 2 days that a rate of its own"
                " for each hour of the day needs"
            ),
        ),
        (
            {"kind": "hour_of_week", "profile": [1.0] * 168},
            28.0,
            "the fitted rate has a value of its own for each of the 168 hours of the week",
        ),
    ],
)
def test_the_kind_of_rate_has_its_reason(rate: dict[str, Any], days: float, note: str) -> None:
    assert _rate(_model(rate, days=days)).notes[1] == note


def test_a_coarser_clock_makes_coarser_batches() -> None:
    assert _rate(_model(step_s=60.0)).notes[0] == (
        "a batch is all jobs that were submitted in the same 1 min, the step of the log's clock"
    )


@pytest.mark.parametrize(
    ("growth", "said"),
    [
        # ln((e^g + 1) / 2) / g of the log holds the first half: 0.8516 of it for a factor of 100.
        (100.0, "Half of all batches come in the last 4.15 days of the log, by a fitted rate that grows 100"),
        (
            0.01,
            "Half of all batches come in the first 4.15 days of the log, by a fitted rate that falls by 99.0 % over",
        ),
    ],
)
def test_a_rate_that_changes_tenfold_warns_of_unequal_weeks_first(growth: float, said: str) -> None:
    result = _rate(_model({"trend_per_day": float(np.log(growth)) / 28}))
    row = result.frame.row(0, named=True)
    assert (row["growth"], row["half_days"]) == (pytest.approx(growth), pytest.approx(4.154, abs=0.001))
    found = _said(result)
    assert found.startswith(said)
    assert "the week below is a mean of very unequal weeks" in found
    assert result.notes[-1].endswith(". The fit models steady growth only: a rate that jumps once looks like this too")
    # The chart is that of the seven days alone.
    (panel,) = panels("fit/arrival_rate", result.frame.to_dicts())
    assert len(next(iter(panel.to_dict()["datasets"].values()))) == 169


def _week_rows(fitted: float, observed: float | None, **more: float) -> list[dict[str, Any]]:
    """Return rows of one rate at all hours; `observed` on Monday 00:00 alone."""
    rows = []
    for hour in range(24):
        rows.append({"hour": hour, "rate": "fitted", **dict.fromkeys(DAYS, fitted), **more})
        seen = dict.fromkeys(DAYS) | ({"monday": observed} if hour == 0 else {})
        rows.append({"hour": hour, "rate": "observed", **seen, **more})
    return rows


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            _week_rows(1.0, 2.0),
            (
                "On average 1 batch (jobs submitted at the same moment) arrives in an hour by the fitted rate, at all"
                " hours alike. The one observed hour is 1 batch away from the fitted rate."
            ),
        ),
        (
            _week_rows(1.0001, 4.0),
            (
                "On average 1 batch (jobs submitted at the same moment) arrives in an hour by the fitted rate, at all"
                " hours alike. The one observed hour is 3 batches away from the fitted rate."
            ),
        ),
        (
            _week_rows(2.0, None, growth=30.0, half_days=1.0),
            (
                "Half of all batches come in the last day of the log, by a fitted rate that grows 30-fold over the log:"
                " the week below is a mean of very unequal weeks, and like few of them. On average 2 batches (jobs"
                " submitted at the same moment) arrive in an hour by the fitted rate, at all hours alike."
            ),
        ),
    ],
)
def test_one_is_told_in_the_singular(rows: list[dict[str, Any]], said: str) -> None:
    assert finding("fit/arrival_rate", rows) == said


@pytest.mark.parametrize(("trend", "told"), [(0.00002, False), (-0.00002, False), (0.00005, True)])
def test_growth_below_a_thousandth_is_not_told(trend: float, told: bool) -> None:
    notes = _rate(_model({"trend_per_day": trend, "trend_standard_error": 0.004})).notes
    assert any("over the 28 days of the log" in note for note in notes) == told


@pytest.mark.parametrize(
    ("trend", "words"), [(30.0, "grows more than 1,000,000-fold"), (-30.0, "falls by more than 99.9 %")]
)
def test_growth_beyond_all_numbers_is_told(trend: float, words: str) -> None:
    # exp(840) is no number.
    result = _rate(_model({"trend_per_day": trend}))
    assert f"over the 28 days of the log the fitted rate {words}" in result.notes[-1]
    assert growth_factor(_model({"trend_per_day": trend})) == pytest.approx(np.exp(700.0 if trend > 0 else -700.0))
    assert "very unequal weeks" in _said(result)


def test_a_log_of_a_day_is_told_in_the_singular() -> None:
    assert _rate(_model({"trend_per_day": 0.5}, days=1.0)).notes[-1] == (
        "over the 1 day of the log the fitted rate grows by 64.9 %"
    )


def test_pieces_are_told_and_the_week_is_their_mean() -> None:
    pieces = [
        {"from_day": a, "to_day": b, "per_hour": x, "standard_error": 0.1}
        for a, b, x in ((0, 7, 2), (7, 21, 8), (21, 28, 4))
    ]
    result = _rate(_model({"form": "piecewise", "pieces": pieces, "per_hour": 2.0, "mean_per_hour": 5.5}))
    assert result.notes[-1] == (
        "over the 28 days of the log the level of the rate, in batches an hour, is 2, then 8 from day 7, 4 from day 21"
    )
    assert result.frame["monday"][0] == pytest.approx(11.0)  # the mean times the factor of the first hour


def test_half_of_the_drawn_hours_lies_where_it_is_said() -> None:
    model = _model({"trend_per_day": 0.2})
    hours = np.exp(0.2 * np.arange(0, 28, 1 / 2400))
    last = hours.cumsum() > hours.sum() / 2
    assert half_days(model) == pytest.approx(last.sum() / 2400, abs=0.01)
    assert half_days(_model()) == 14


@pytest.mark.parametrize(
    ("trend", "note"),
    [
        (0.01, "over the 28 days of the log the fitted rate grows by 32.3 %"),
        (-0.01, "over the 28 days of the log the fitted rate falls by 24.4 %"),
        (0.002, "over the 28 days of the log the fitted rate grows by 5.8 %, which may be chance"),
    ],
)
def test_a_modest_change_is_a_note(trend: float, note: str) -> None:
    result = _rate(_model({"trend_per_day": trend, "trend_standard_error": 0.004}))
    assert result.notes[-1] == note
    assert "growth" not in result.frame.columns
    assert _said(result).startswith("On average")


def test_hours_that_are_not_those_of_a_day_are_told_beside_the_rate() -> None:
    model = _model(known=False)
    assert "the log does not state the hour of the day: day 1 and hour 0 are those in which it begins" in (
        _rate(model).notes
    )
    entry = {"measure": "until_end", "gpu_class": None, "status": None, "vc": None, "pooled_to": None, "n": 1}
    entry |= {"right_censored": 0, "chosen": None, "reason": "no family"}
    document = {**model.document, "run_times": [entry], "notes": [HOURS_UNKNOWN, "another"]}
    family, *_ = fitted_answers(WorkloadModel(document))
    assert answered(family).notes == ("another",)


def test_sessions_are_told_with_the_distances_that_chose_them() -> None:
    processes = [{"process": "mmpp", "distance": 0.31}, {"process": "sessions", "distance": 0.15}]
    sessions = {"threshold_s": 60.0, "sessions": 10_000, "size": {"mean": 5.0}}
    result = _process(_model(process="sessions", sessions=sessions, held_out={"processes": processes}))
    rows = result.frame.filter(result.frame["part"].is_in(["held out", "setting"]))
    assert rows.select("name", "value", "verdict").rows() == [
        ("mmpp", 0.31, None),
        ("sessions", 0.15, "chosen"),
        ("threshold_s", 60.0, None),
        ("sessions", 10_000.0, None),
        ("size", 5.0, None),
    ]
    assert _said(result).endswith(
        "The model draws sessions: 5 jobs on average of one user (of one VC where users are unknown), each at most 60 s"
        " after the one before."
    )


def test_bursts_are_told_in_words_and_their_numbers_in_a_table() -> None:
    result = _process(_model())
    assert result.frame.drop("name", "ratio", "decides").rows() == [
        ("test of hourly counts", "variation of hourly counts", 1.19, 0.002, "more than Poisson"),
        ("test of gaps", "squared variation of gaps", 1.46, 0.3, "as Poisson"),
        ("process", "BIC, of processes: Poisson", 1570.0, None, "excluded by the tests"),
        ("process", "BIC, of processes: gamma renewal", 1579.683, None, "chosen"),
        ("process", "BIC, of processes: MMPP", 1589.997, None, None),
        ("setting", "gamma shape of the gaps (1 for Poisson)", 0.92, None, None),
        ("rate", "BIC, of rates: the same at all hours", 1663.1, None, None),
        ("rate", "BIC, of rates: by hour of the day", 1540.5, None, "chosen"),
        ("rate", "BIC, of rates: by hour of the week", 2321.4, None, None),
    ]
    assert result.frame.select("name", "ratio", "decides").rows() == [
        ("dispersion_of_hourly_counts", 1.19, True),
        ("squared_variation_of_gaps", 1.46, False),
        ("poisson", None, False),
        ("gamma_renewal", None, True),
        ("mmpp", None, False),
        ("a", None, None),
        ("constant", None, False),
        ("hour_of_day", None, True),
        ("hour_of_week", None, False),
    ]
    assert _said(result) == (
        "Batches of jobs come in bursts: their number in an hour varies 1.19 times as much as with independent arrivals"
        " (Poisson), more than chance would give (p = 0.002). So the model draws the times between batches from a gamma"
        " distribution (gamma renewal)."
    )
    assert result.notes == (
        (
            "gamma renewal: each time between two batches is drawn for itself, very short and very long ones more often"
            " than with independent arrivals"
        ),
        "a quiet day or a sudden rise that the fitted rate does not follow counts as bursts here",
        "a BIC is compared with those of its own kind only: processes with processes, rates with rates",
    )


def test_two_states_are_told_with_their_rates() -> None:
    result = _process(_model(process="mmpp"))
    assert _said(result).endswith(
        " So the model lets the rate switch between a calm and a busy state (MMPP), with 0.25 and 2.5 times the fitted"
        " rate."
    )
    settings = {row["name"]: row["value"] for row in result.frame.to_dicts() if row["part"] == "setting"}
    assert settings == {"quiet_rate": 0.25, "busy_rate": 2.5, "to_busy": 8.0, "to_quiet": 2.0}
    assert result.notes[0].startswith("MMPP stands for Markov-modulated Poisson process: the rate switches at random")


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        (
            {"p_dispersion": 0.2, "p_variation": 0.004},
            (
                "Batches of jobs come in bursts: the times between them vary 1.46 times as much as with independent"
                " arrivals (Poisson), more than chance would give (p = 0.004)."
            ),
        ),
        (
            {"p_dispersion": 0.2, "squared_variation_of_gaps": 0.5, "p_variation": 0.004},
            (
                "Batches of jobs come more evenly than by chance: the times between them vary 0.5 times as much as with"
                " independent arrivals (Poisson), less than chance would give (p = 0.004)."
            ),
        ),
    ],
)
def test_the_test_that_rejects_is_told(tests: dict[str, float], said: str) -> None:
    assert _said(_process(_model(tests=TESTS | tests))).startswith(said)


COARSE = {"squared_variation_of_gaps": 0.855, "variation_if_independent": 0.57, "p_variation": 0.002}


def test_bursts_are_bursts_where_the_clock_is_coarse() -> None:
    # Read to the minute, independent arrivals vary 0.57 here: 0.855 is more, and not less.
    result = _process(_model(tests=TESTS | {"p_dispersion": 0.2} | COARSE))
    assert _said(result).startswith(
        "Batches of jobs come in bursts: the times between them vary 1.5 times as much as with independent arrivals"
        " (Poisson), more than chance would give (p = 0.002)."
    )
    rows = {row["name"]: row for row in result.frame.to_dicts()}
    tested = rows["squared_variation_of_gaps"]
    assert (tested["value"], tested["ratio"], tested["decides"]) == (0.855, pytest.approx(1.5), True)
    assert tested["verdict"] == "more than Poisson"
    assert rows["a"]["measure"] == "gamma shape of the gaps, in the steps of the log's clock"


def test_the_hourly_counts_are_compared_with_those_of_independent_arrivals_too() -> None:
    tests = TESTS | {"dispersion_of_hourly_counts": 0.9, "dispersion_if_independent": 0.5}
    said = _said(_process(_model(tests=tests)))
    assert said.startswith("Batches of jobs come in bursts: their number in an hour varies 1.8 times as much")
    # In a single hour they cannot vary, and nothing is said of them.
    tests |= {"dispersion_of_hourly_counts": 0.0, "dispersion_if_independent": 0.0, "p_dispersion": 1.0}
    assert _said(_process(_model(process="poisson", candidates=[], tests=tests))).startswith(
        "Batches of jobs come as if independently of each other: the times between them vary 1.46 times as much as with"
    )


def test_labels_do_not_change_what_is_said() -> None:
    rows = _process(_model(process="mmpp")).frame
    relabelled = [{**row, "measure": "m", "verdict": "v"} for row in reversed(rows.to_dicts())]
    assert finding("fit/arrival_process", relabelled) == _said(_process(_model(process="mmpp")))


def test_independent_arrivals_are_told_as_such() -> None:
    model = _model(process="poisson", candidates=[], tests=TESTS | {"p_dispersion": 0.2})
    result = _process(model)
    assert _said(result) == (
        "Batches of jobs come as if independently of each other: their number in an hour varies 1.19 times as much and"
        " the times between them vary 1.46 times as much as with independent arrivals (Poisson), no more than chance"
        " would give. So the model draws independent arrivals."
    )
    assert result.notes == ()


def test_too_few_arrivals_for_a_test_are_a_reason() -> None:
    why = "5 arrivals cannot distinguish the processes, 20 are needed"
    found = process_answer(_model(process="poisson", tests=None, candidates=[], why=why))
    assert found == PROCESS.unanswered(f"Arrivals are taken as Poisson: {why}.")
