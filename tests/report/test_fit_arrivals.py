"""The fitted arrivals in a report: a rate through the week, and whether jobs come in bursts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.report.answering import answered, told
from tracekit.fit.arrivals import HOURS_UNKNOWN
from tracekit.fit.model import WorkloadModel
from tracekit.report.fit_answers import DAYS, PROCESS, fitted_answers, process_answer, rate_answer
from tracekit.report.fit_curves import growth_factor, half_days
from tracekit.report.sections.interface import charts, finding

if TYPE_CHECKING:
    from tests.reviewed import Golden
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


def test_a_rate_by_hour_of_day_claims_nothing_of_the_days(golden: Golden) -> None:
    batch, kind = _rate(_model()).notes
    golden(
        [
            told(batch),
            told(kind),
        ]
    )


@pytest.mark.parametrize(
    ("rate", "days", "number"),
    [
        ({"kind": "hour_of_day", "bic": {k: BIC[k] for k in ("constant", "hour_of_day")}}, 10.0, "14"),
        ({"kind": "constant", "profile": [1.0], "bic": {"constant": 1.0}}, 1.5, "2"),
        ({"kind": "hour_of_week", "profile": [1.0] * 168}, 28.0, "168"),
    ],
    ids=["by hour of the day", "constant", "by hour of the week"],
)
def test_the_kind_of_rate_has_its_reason(golden: Golden, rate: dict[str, Any], days: float, number: str) -> None:
    golden(told(_rate(_model(rate, days=days)).notes[1], number))


def test_a_coarser_clock_makes_coarser_batches(golden: Golden) -> None:
    golden(told(_rate(_model(step_s=60.0)).notes[0], "1 min"))


# ln((e^g + 1) / 2) / g of the log holds the first half: 0.8516 of it for a factor of 100.
@pytest.mark.parametrize(("growth", "words"), [(100.0, "grows 100.0"), (0.01, "falls by 99.0 %")])
def test_a_rate_that_changes_tenfold_warns_of_unequal_weeks_first(golden: Golden, growth: float, words: str) -> None:
    result = _rate(_model({"trend_per_day": float(np.log(growth)) / 28}))
    row = result.frame.row(0, named=True)
    assert (row["growth"], row["half_days"]) == (pytest.approx(growth), pytest.approx(4.154, abs=0.001))
    golden([told(_said(result), "4.15", words), told(result.notes[-1])])
    # The chart is that of the seven days alone.
    (chart,) = charts("fit/arrival_rate", result.frame.to_dicts())
    assert len(next(iter(chart.to_dict()["datasets"].values()))) == 169


def _week_rows(fitted: float, observed: float | None, **more: float) -> list[dict[str, Any]]:
    """Return rows of one rate at all hours; `observed` on Monday 00:00 alone."""
    rows = []
    for hour in range(24):
        rows.append({"hour": hour, "rate": "fitted", **dict.fromkeys(DAYS, fitted), **more})
        seen = dict.fromkeys(DAYS) | ({"monday": observed} if hour == 0 else {})
        rows.append({"hour": hour, "rate": "observed", **seen, **more})
    return rows


def test_one_is_reported_in_the_singular(golden: Golden) -> None:
    golden(
        [
            told(finding("fit/arrival_rate", _week_rows(1.0, 2.0)), "1 batch"),
            told(finding("fit/arrival_rate", _week_rows(1.0001, 4.0)), "1 batch", "3"),
            told(finding("fit/arrival_rate", _week_rows(2.0, None, growth=30.0, half_days=1.0)), "30", "2"),
        ]
    )


@pytest.mark.parametrize(("trend", "noted"), [(0.00002, False), (-0.00002, False), (0.00005, True)])
def test_growth_below_a_thousandth_is_not_reported(trend: float, noted: bool) -> None:
    notes = _rate(_model({"trend_per_day": trend, "trend_standard_error": 0.004})).notes
    assert any("28 days" in note for note in notes) == noted


@pytest.mark.parametrize(("trend", "words"), [(30.0, "more than 1,000,000"), (-30.0, "more than 99.9 %")])
def test_growth_beyond_all_numbers_is_reported(golden: Golden, trend: float, words: str) -> None:
    # exp(840) is no number.
    result = _rate(_model({"trend_per_day": trend}))
    golden(told(result.notes[-1], "28", words))
    assert growth_factor(_model({"trend_per_day": trend})) == pytest.approx(np.exp(700.0 if trend > 0 else -700.0))
    assert "very different weeks" in _said(result)


def test_a_log_of_a_day_is_reported_in_the_singular(golden: Golden) -> None:
    golden(told(_rate(_model({"trend_per_day": 0.5}, days=1.0)).notes[-1], "1", "64.9 %"))


def test_pieces_are_reported_and_the_week_is_their_mean(golden: Golden) -> None:
    pieces = [
        {"from_day": a, "to_day": b, "per_hour": x, "standard_error": 0.1}
        for a, b, x in ((0, 7, 2), (7, 21, 8), (21, 28, 4))
    ]
    result = _rate(_model({"form": "piecewise", "pieces": pieces, "per_hour": 2.0, "mean_per_hour": 5.5}))
    golden(told(result.notes[-1], "28", "2", "8", "7", "4", "21"))
    assert result.frame["monday"][0] == pytest.approx(11.0)  # the mean times the factor of the first hour


def test_half_of_the_drawn_hours_lies_where_it_is_said() -> None:
    model = _model({"trend_per_day": 0.2})
    hours = np.exp(0.2 * np.arange(0, 28, 1 / 2400))
    last = hours.cumsum() > hours.sum() / 2
    assert half_days(model) == pytest.approx(last.sum() / 2400, abs=0.01)
    assert half_days(_model()) == 14


@pytest.mark.parametrize(("trend", "change"), [(0.01, "32.3 %"), (-0.01, "24.4 %"), (0.002, "5.8 %")])
def test_a_modest_change_is_a_note(golden: Golden, trend: float, change: str) -> None:
    result = _rate(_model({"trend_per_day": trend, "trend_standard_error": 0.004}))
    golden(told(result.notes[-1], change))
    assert "growth" not in result.frame.columns
    assert change not in _said(result)


def test_hours_that_are_not_those_of_a_day_are_reported_next_to_the_rate(golden: Golden) -> None:
    model = _model(known=False)
    (hours,) = (note for note in _rate(model).notes if "hour of the day is unknown:" in note)
    golden(told(hours, "day 1", "hour 0"))
    entry = {"measure": "until_end", "gpu_class": None, "status": None, "vc": None, "pooled_to": None, "n": 1}
    entry |= {"right_censored": 0, "chosen": None, "reason": "no family"}
    document = {**model.document, "run_times": [entry], "notes": [HOURS_UNKNOWN, "another"]}
    family, *_ = fitted_answers(WorkloadModel(document))
    assert answered(family).notes == ("another",)


def test_sessions_are_reported_with_the_distances_that_chose_them(golden: Golden) -> None:
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
    golden(told(_said(result), "5", "60 s"))


def test_bursts_are_reported_in_words_and_their_numbers_in_a_table(golden: Golden) -> None:
    result = _process(_model())
    assert result.frame.drop("name", "measure", "ratio", "decides").rows() == [
        ("test of hourly counts", 1.19, 0.002, "more than Poisson"),
        ("test of gaps", 1.46, 0.3, "as Poisson"),
        ("process", 1570.0, None, "excluded by the tests"),
        ("process", 1579.683, None, "chosen"),
        ("process", 1589.997, None, None),
        ("setting", 0.92, None, None),
        ("rate", 1663.1, None, None),
        ("rate", 1540.5, None, "chosen"),
        ("rate", 2321.4, None, None),
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
    assert len(result.notes) == 3
    golden([told(_said(result), "1.19", "0.002"), *result.frame["measure"], *result.notes])


def test_two_states_are_reported_with_their_rates(golden: Golden) -> None:
    result = _process(_model(process="mmpp"))
    settings = {row["name"]: row["value"] for row in result.frame.to_dicts() if row["part"] == "setting"}
    assert settings == {"quiet_rate": 0.25, "busy_rate": 2.5, "to_busy": 8.0, "to_quiet": 2.0}
    golden(
        [
            told(_said(result), "0.25", "2.5"),
            told(result.notes[0]),
        ]
    )


@pytest.mark.parametrize(
    ("gaps", "number"), [({}, "1.46"), ({"squared_variation_of_gaps": 0.5}, "0.5")], ids=["in bursts", "evenly"]
)
def test_the_test_that_rejects_is_reported(golden: Golden, gaps: dict[str, float], number: str) -> None:
    tests = TESTS | {"p_dispersion": 0.2, "p_variation": 0.004} | gaps
    golden(told(_said(_process(_model(tests=tests))), number, "0.004"))


COARSE = {"squared_variation_of_gaps": 0.855, "variation_if_independent": 0.57, "p_variation": 0.002}


def test_bursts_are_bursts_where_the_clock_is_coarse(golden: Golden) -> None:
    # Read to the minute, independent arrivals vary 0.57 here: 0.855 is more, and not less.
    result = _process(_model(tests=TESTS | {"p_dispersion": 0.2} | COARSE))
    rows = {row["name"]: row for row in result.frame.to_dicts()}
    tested = rows["squared_variation_of_gaps"]
    assert (tested["value"], tested["ratio"], tested["decides"]) == (0.855, pytest.approx(1.5), True)
    assert tested["verdict"] == "more than Poisson"
    golden(
        [
            told(_said(result), "1.5", "0.002"),
            told(rows["a"]["measure"]),
        ]
    )


def test_the_hourly_counts_are_compared_with_those_of_independent_arrivals_too(golden: Golden) -> None:
    tests = TESTS | {"dispersion_of_hourly_counts": 0.9, "dispersion_if_independent": 0.5}
    said = _said(_process(_model(tests=tests)))
    # In a single hour they cannot vary, and nothing is said of them.
    tests |= {"dispersion_of_hourly_counts": 0.0, "dispersion_if_independent": 0.0, "p_dispersion": 1.0}
    golden(
        [
            told(said, "1.8"),
            told(_said(_process(_model(process="poisson", candidates=[], tests=tests))), "1.46"),
        ]
    )


def test_labels_do_not_change_what_is_said() -> None:
    rows = _process(_model(process="mmpp")).frame
    relabelled = [{**row, "measure": "m", "verdict": "v"} for row in reversed(rows.to_dicts())]
    assert finding("fit/arrival_process", relabelled) == _said(_process(_model(process="mmpp")))


def test_independent_arrivals_are_reported_as_such(golden: Golden) -> None:
    model = _model(process="poisson", candidates=[], tests=TESTS | {"p_dispersion": 0.2})
    result = _process(model)
    golden(told(_said(result), "1.19", "1.46"))
    assert result.notes == ()


def test_too_few_arrivals_for_a_test_are_a_reason() -> None:
    why = "too few"
    found = process_answer(_model(process="poisson", tests=None, candidates=[], why=why))
    assert found == PROCESS.unanswered(f"Arrivals are assumed to be Poisson: {why}.")
