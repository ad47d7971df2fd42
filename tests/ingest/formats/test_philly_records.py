"""Runs of the job log are read at once; an object that deviates is put into the documented words or refused."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tracekit.ingest.formats import _philly_jobs
from tracekit.ingest.formats._philly_jobs import PhillyRecords, Refusal, _records, read_records
from tracekit.ingest.formats._records import Fault
from tracekit.ingest.json_array import json_runs

if TYPE_CHECKING:
    from collections.abc import Sequence


class Outcome(NamedTuple):
    records: list[PhillyRecords]
    refused: list[tuple[int, Refusal]]
    seen: set[str]


def outcome(text: bytes, *, at_once: bool = True) -> Outcome:
    """Read a log; unless `at_once`, look at each object first, as is done where one of them deviates."""
    runs, seen = list(json_runs(io.BytesIO(text), "log")), set[str]()

    def looked_at(texts: list[bytes], rows: Sequence[int], known: set[str]) -> PhillyRecords:
        if isinstance(rows, range):
            raise Fault(None, "is looked at alone")
        return _records(texts, rows, known)

    with pytest.MonkeyPatch.context() as patch:
        if not at_once:
            patch.setattr(_philly_jobs, "_records", looked_at)
        found = [read_records(run, seen) for run in runs]
    refused = [(int(run.lines[r.row]), r) for run, (_, rs, _) in zip(runs, found, strict=True) for r in rs]
    return Outcome([records for records, _, _ in found], refused, seen)


def was_read_at_once(text: bytes) -> bool:
    """Return whether no object had to be looked at by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_philly_jobs, "_as_documented", lambda *_: pytest.fail("one by one"))
        try:
            outcome(text)
        except pytest.fail.Exception:
            return False
    return True


def assert_same(text: bytes) -> None:
    quick, slow = outcome(text), outcome(text, at_once=False)
    assert quick[1:] == slow[1:]
    assert len(quick.records) == len(slow.records)
    for ours, theirs in zip(quick.records, slow.records, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert_frame_equal(one, other)


def job(**fields: Any) -> dict[str, Any]:
    whole = {
        "status": "Pass",
        "vc": "6214e9",
        "jobid": "application_1_1",
        "attempts": [
            {
                "start_time": "2017-08-07 01:00:00",
                "end_time": "2017-08-07 02:00:00",
                "detail": [{"ip": "m1", "gpus": ["gpu2", "gpu0"]}, {"ip": "m2", "gpus": []}],
            }
        ],
        "submitted_time": "2017-08-07 00:30:00",
        "user": "ce2f4c",
    }
    return {name: value for name, value in (whole | fields).items() if value != "ABSENT"}


def test_the_fields_of_a_documented_object() -> None:
    text = json.dumps([job(), job(jobid="application_1_2", attempts=[], vc=None, user="")]).encode()
    assert was_read_at_once(text)
    found = outcome(text).records[0]
    assert found.jobs.rows() == [
        (0, "application_1_1", "6214e9", "ce2f4c", "Pass", "2017-08-07 00:30:00", 1),
        (1, "application_1_2", None, None, "Pass", "2017-08-07 00:30:00", 0),
    ]
    assert found.attempts.rows() == [(0, 0, "2017-08-07 01:00:00", "2017-08-07 02:00:00", 2.0, 2)]
    assert found.details.rows() == [(0, 0, "m1", [2, 0]), (0, 0, "m2", None)]
    assert_same(text)


@pytest.mark.parametrize(
    ("fields", "quick"),
    [
        ({"extra": {"a": [1, 2.5, True]}}, False),
        ({"attempts": None}, True),
        ({"attempts": "ABSENT", "vc": "ABSENT"}, True),
        ({"attempts": [{"start_time": None, "end_time": "None", "detail": None}, {}]}, True),
        ({"vc": 'quote " and \\ and \u00e9 and \u2028'}, True),
        ({"attempts": "None"}, False),
        ({"attempts": [None]}, False),
        ({"attempts": [{"detail": [None]}]}, False),
        ({"attempts": [{"detail": [{"ip": "", "gpus": []}]}]}, False),
        ({"attempts": [{"detail": [{"ip": "m1", "gpus": ["gpu1234"]}]}]}, False),
        ({"attempts": [{"detail": [{"ip": "m1", "gpus": ["gpu\u0663"]}]}]}, False),
        ({"attempts": [{"detail": [{"ip": "m1", "gpus": ["gpu1\n"]}]}]}, False),
        ({"attempts": [{"detail": [{"ip": "m1", "gpus": [None]}]}]}, False),
        ({"attempts": {"start_time": "x"}}, False),
        ({"vc": 5}, False),
        ({"vc": ["a"]}, False),
        ({"vc": True}, False),
        ({"jobid": None}, False),
        ({"jobid": "ABSENT"}, False),
    ],
)
def test_objects_that_deviate_are_looked_at_one_by_one_with_the_same_outcome(
    fields: dict[str, Any], quick: bool
) -> None:
    text = json.dumps([job(jobid="application_1_0"), job(**fields)], ensure_ascii=False).encode()
    assert was_read_at_once(text) is quick
    assert_same(text)


@pytest.mark.parametrize(
    "text",
    [
        b'[{"jobid": "a", "jobid": "b"}]',
        b'[{"jobid": "a"}, {"jobid": "a"}]',
        b'[{"jobid": "a", "vc": "\xff"}]',
        b'[{"jobid": "a", "vc": "\\ud800"}]',
        b'[{"jobid": "a", "x": NaN}]',
        b'[{"jobid": "a", "x": 01}]',
        b'[{"jobid": "a",}]',
        b'[{"jobid": "a" "vc": "b"}]',
        b'[{"jobid": "a", "vc": "tab\there"}]',
        b'[{"jobid": "a", "vc": "nul\\u0000"}]',
        b'[{"jobid": "a"} x {"jobid": "b"}]',
        b'[{"jobid": "a", /* no */ "vc": "b"}]',
        b"[]",
        b"[{}]",
    ],
)
def test_damaged_text_has_the_same_outcome_either_way(text: bytes) -> None:
    assert_same(text)


def test_a_job_that_an_earlier_run_held_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps([job(), job(jobid="application_1_2"), job()]).encode()
    monkeypatch.setattr("tracekit.ingest.json_array._CHUNK", 300)
    found = outcome(text)
    assert found.seen == {"application_1_1", "application_1_2"}
    assert found.refused == [(1, Refusal(0, "jobid", "repeats the key of an earlier record"))]


def test_an_object_that_is_not_valid_json_is_refused_alone() -> None:
    text = b'[{"jobid": "a"},\n{"jobid": nope},\n{"jobid": "c"}]'
    found = outcome(text)
    assert [row[:2] for row in found.records[0].jobs.rows()] == [(0, "a"), (2, "c")]
    assert [(line, r.row, r.column, r.reason.partition(":")[0]) for line, r in found.refused] == [
        (2, 1, None, "is not valid JSON")
    ]


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, "", "None", "x", 5, [], {}, [None], "2017-08-07 01:00:00", "gpu3", "m1"]
)


@given(
    jobs=st.lists(
        st.builds(
            job,
            jobid=st.sampled_from(["a", "b", "c", "d", None]),
            vc=ODD,
            attempts=ODD
            | st.lists(
                ODD
                | st.fixed_dictionaries(
                    {"start_time": ODD},
                    optional={
                        "detail": ODD
                        | st.lists(
                            st.fixed_dictionaries(
                                {"ip": st.sampled_from(["m1", "m2"]) | ODD, "gpus": st.just(["gpu0"]) | ODD}
                            ),
                            max_size=2,
                        )
                    },
                ),
                max_size=3,
            ),
        ),
        max_size=4,
    )
)
def test_looking_at_each_object_changes_nothing(jobs: list[dict[str, Any]]) -> None:
    assert_same(json.dumps(jobs).encode())


def test_frames_keep_their_types_when_nothing_is_in_them() -> None:
    found = outcome(b"[{}]").records[0]
    assert [frame.schema for frame in found] == [frame.schema for frame in outcome(b'[{"jobid": "a"}]').records[0]]
    assert isinstance(found.jobs, pl.DataFrame)
