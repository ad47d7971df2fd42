"""Answers about a part: those of the queries, in the words of the report."""

from __future__ import annotations

import datetime as dt
import re
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import duckdb
import pytest
from starlette.testclient import TestClient

from tests.serve.conftest import HOSTILE
from tracekit.analysis.query_defaults import parameters_of, query_defaults
from tracekit.characterize import answer_query, find_query, run_query
from tracekit.characterize.limits import Stop
from tracekit.characterize.session import Session
from tracekit.report.sections.interface import TraceFacts
from tracekit.report.structure import ROW_LIMIT
from tracekit.serve.app import made_app
from tracekit.serve.part import narrowed, part_of, words_of
from tracekit.serve.trace import ServedTrace
from tracekit.tables.window import EVERYTHING
from tracekit.text import duration

if TYPE_CHECKING:
    from tests.reviewed import Golden
    from tracekit.report.structure import AnswerInfo
    from tracekit.tables.window import Window
    from tracekit.trace import Trace

MAY = {"since": "2020-05-03", "until": "2020-05-10T00:00:00"}
PART = {**MAY, "where.cluster": "A", "where.size": "1", "where.vc": "ml"}


def _part(given: dict[str, str]) -> Window:
    return part_of(given.items())


def _asked(served: ServedTrace, of_each_section: int | None) -> list[AnswerInfo]:
    """Return the answers of queries in the report: the first so many of each section, or all."""
    found = [[a for a in s["answers"] if a["kind"] == "query"] for s in served.report.data["sections"]]
    assert sum(map(len, found)) > 25
    assert sum(map(bool, found)) > 4
    return [one for answers in found for one in answers[:of_each_section]]


ASKED = pytest.mark.parametrize("of_each_section", [1, pytest.param(None, marks=pytest.mark.thorough)])


@ASKED
def test_every_answer_has_the_numbers_of_its_query_on_that_part(
    served: ServedTrace, of_each_section: int | None
) -> None:
    part = _part(PART)
    trace = narrowed(served.trace, part)
    session = Session(trace)
    defaults = query_defaults(served.trace, served.report.data["capacity"])
    for name in (one["name"] for one in _asked(served, of_each_section)):
        params, _ = parameters_of(find_query(name), defaults)
        expected = answer_query(trace, name, params, session=session)
        found = served.answer(name, part, Stop()).info
        assert found["rows"] == expected.rows(ROW_LIMIT), name
        assert found["row_count"] == expected.frame.height, name


@ASKED
def test_asked_of_the_whole_every_sentence_and_number_is_that_of_the_report(
    served: ServedTrace, of_each_section: int | None
) -> None:
    for stated in _asked(served, of_each_section):
        found = served.answer(stated["name"], EVERYTHING, Stop()).info
        for key in ("finding", "rows", "row_count", "columns", "question", "params", "intervals"):
            assert found[key] == stated[key], stated["name"]


def _answer(client: TestClient, name: str, **given: str) -> dict[str, Any]:
    found = client.get(f"/answer/{name}", params=given)
    assert found.status_code == 200, found.text
    body: dict[str, Any] = found.json()
    return body


def test_an_answer_worked_by_hand(client: TestClient, golden: Golden) -> None:
    # alice: 2 GPUs for 4 h, 4 GPUs for 2 h, 1 GPU for 1 h.
    body = _answer(client, "overview/status", **{"where.user": "alice"})
    assert body["asked"] == "only user alice"
    assert body["rows"] == 2
    golden(body["finding"])
    assert "<bdi>only user alice</bdi>" in body["html"]
    cells = [re.sub("<.*", "", c.removeprefix("<bdi>")) for c in re.findall(r"<td[^>]*>(.*?)</td>", body["html"])]
    assert [cells[i] for i in (0, 1, 3)] == ["completed", "2", "9"]
    assert len(body["charts"]["charts"]) == body["html"].count('class="plot"') > 0
    assert body["charts"]["charts"][0]["id"] in body["html"]


def test_answers_about_free_gpus_of_some_jobs_say_whose_are_left_out(client: TestClient) -> None:
    said = "GPUs allocated to other jobs count as free"
    assert said in _answer(client, "queuing/cluster_timeline", **{"where.user": "alice"})["html"]
    assert said not in _answer(client, "queuing/cluster_timeline", **MAY)["html"]


def test_a_part_without_rows_says_so(client: TestClient) -> None:
    body = _answer(client, "overview/status", since="2031-01-01")
    assert body["rows"] == 0
    assert "There are no data for this part" in body["html"]
    assert body["charts"]["charts"] == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/answer/queuing/nothing", "the report has no question 'queuing/nothing'"),
        ("/answer//etc/passwd", "the report has no question '/etc/passwd'"),
        ("/answer/views/job_classes", "the report has no question"),
        ("/answer/queuing/run_time?where.user=nobody", "no job of the trace has the user 'nobody'"),
        ("/answer/queuing/run_time?where.job_id=a1", "unknown parameter 'where.job_id'"),
        ("/answer/queuing/run_time?where.size=3", "'3' is not a size class"),
        ("/answer/queuing/run_time?where.cluster=C", "the trace has no cluster 'C'"),
        ("/answer/queuing/run_time?since=soon", "since: 'soon' is not a time"),
        ("/answer/queuing/run_time?since=2020-05-04&until=2020-05-03", "is not after"),
        ("/answer/queuing/run_time?since=2020-05-04&since=2020-05-04", "'since' is given twice"),
        ("/answer/queuing/run_time?sql=SELECT%201", "unknown parameter 'sql'"),
        ("/answer/queuing/run_time?where.user=%27%20OR%201=1", "no job of the trace has the user '' OR 1=1'"),
    ],
)
def test_what_cannot_be_asked_is_one_line(client: TestClient, path: str, said: str) -> None:
    found = client.get(f"http://localhost{path}")
    assert found.status_code == 400
    assert said in found.json()["error"]
    assert "\n" not in found.json()["error"]


@pytest.mark.parametrize("end", ["since", "until"])
@pytest.mark.parametrize(
    ("time", "code"),
    [
        ("0000-01-01", 400),
        ("0001-01-01", 200),
        ("0001-01-01T00:00:00+14:00", 400),
        ("0001-01-01T00:00:00-14:00", 200),
        ("9999-12-31T23:59:59.999999", 200),
        ("9999-12-31T23:59:59-14:00", 400),
        ("10000-01-01", 400),
        ("NaN", 400),
        ("", 400),
        ("2020-05-03\0", 400),
        ("\ud800", 400),
    ],
)
def test_times_at_the_ends_of_the_calendar_have_an_answer(client: TestClient, end: str, time: str, code: int) -> None:
    query = urlencode({end: time}, errors="surrogatepass")
    for path in ("/answer/overview/status", "/first"):
        assert client.get(f"http://localhost{path}?{query}").status_code == code


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, "TRUE"),
        ({"where.user": "alice"}, "\"user\" = 'alice'"),
        ({"where.vc": "ml"}, "vc = 'ml'"),
        ({"where.size": "1"}, "gpu_count = 1"),
        ({"where.cluster": "A", "where.vc": "db"}, "cluster = 'A' AND vc = 'db'"),
        (MAY, "TRUE"),
        ({"since": "2020-05-04", "until": "2020-05-05T06:00", "where.cluster": "A"}, "cluster = 'A'"),
        ({"since": "2020-05-04", "where.user": "dan"}, "\"user\" = 'dan'"),
    ],
)
def test_the_first_numbers_are_those_of_the_tables(
    client: TestClient, trace: Trace, given: dict[str, str], chosen: str
) -> None:
    body = client.get("/first", params=given).json()
    told = {name: one["value"] for name, one in body["numbers"].items()}
    since, until = given.get("since", "2020-01-01"), given.get("until", "2021-01-01")
    with duckdb.connect() as con:
        for table in ("jobs", "nodes"):
            con.register(table, trace.scan(table).collect())
        # Those with GPUs.
        rows = con.execute(
            f"""
            SELECT
                avg(queue_s) FILTER (submit_time >= $since AND submit_time < $until),
                sum(queue_s) FILTER (submit_time >= $since AND submit_time < $until) / 3600,
                sum(run_s * gpu_count) FILTER (status = 'completed' AND end_time >= $since AND end_time < $until)
                / sum(run_s * gpu_count) FILTER (end_time >= $since AND end_time < $until),
                sum(gpu_count * greatest(0, epoch(least(end_time, $until)) - epoch(greatest(start_time, $since))))
                / (SELECT sum(gpu_count) FROM nodes WHERE cluster = $cluster OR $cluster IS NULL)
                / (epoch(CAST($until AS TIMESTAMP)) - epoch(CAST($since AS TIMESTAMP)))
            FROM jobs WHERE gpu_count > 0 AND {chosen}
            """,
            {"since": dt.datetime.fromisoformat(since), "until": dt.datetime.fromisoformat(until),
             "cluster": given.get("where.cluster")},
        ).fetchall()  # fmt: skip
    waits, hours, completed, held = rows[0]
    assert told["mean_wait_s"] == pytest.approx(waits)
    assert told["waited_h"] == pytest.approx(hours)
    assert told["completed_share"] == pytest.approx(completed)
    assert body["numbers"]["mean_wait_s"]["text"] == duration(waits)
    assert duration(waits) in body["state"] or "at once" in body["state"]
    if {"since", "until"} <= given.keys() and given != MAY:  # in these days no node is down
        assert told["held_share"] == pytest.approx(held)


def test_the_first_numbers_of_the_whole_are_those_of_the_report(client: TestClient, served: ServedTrace) -> None:
    told = client.get("/first").json()["numbers"]
    stated = {card["name"]: card for card in served.report.data["headline"] if card["name"]}
    assert len(stated) == 5
    for name, card in stated.items():
        assert [told[name][key] for key in ("value", "text", "change")] == [
            card[key] for key in ("value", "text", "change")
        ]


def test_the_first_numbers_of_a_part_say_what_they_cannot_tell(client: TestClient, golden: Golden) -> None:
    body = client.get("/first", params={"where.user": "alice"}).json()
    assert body["asked"] == "only user alice"
    # 1, 2 and 3 hours; 10 of 17 GPU-hours failed or did not.
    assert [body["numbers"][name]["text"] for name in ("mean_wait_s", "waited_h")] == ["2 h", "6 h"]
    assert body["numbers"]["completed_share"]["text"] == "52.9 %"
    used = body["numbers"]["used_share"]
    assert [used[key] for key in ("value", "text", "change", "path")] == [None, "unknown", None, ""]
    assert len(used) == 5
    assert "allocated to them" in body["state"]
    none = client.get("/first", params={"since": "2031-01-01"}).json()
    golden([used["note"], none["state"]])
    assert {one["text"] for one in none["numbers"].values()} == {"unknown"}


@pytest.mark.parametrize(
    ("query", "said"),
    [("where.user=nobody", "no job of the trace has the user 'nobody'"), ("sql=SELECT", "unknown parameter 'sql'"),
     ("since=soon", "'soon' is not a time"), ("since=2020-05-04&until=2020-05-03", "is not after")],
)  # fmt: skip
def test_first_numbers_that_cannot_be_asked_are_one_line(client: TestClient, query: str, said: str) -> None:
    found = client.get(f"http://localhost/first?{query}")
    assert found.status_code == 400
    assert said in found.json()["error"]


def test_hostile_names_are_text(client: TestClient) -> None:
    for given in ({"where.user": HOSTILE}, {}):
        for name in ("users/concentration", "failures/by_user", "utilization/jobs_to_look_at", "users/queueing"):
            html = _answer(client, name, **given)["html"]
            assert "<img" not in html
            assert "<script" not in html
    assert "&lt;/script&gt;" in _answer(client, "users/queueing")["html"]


def test_jobs_nodes_and_users_of_tables_are_links(client: TestClient) -> None:
    html = _answer(client, "users/queueing")["html"]
    assert '<a href="/user/alice">' in html
    assert '<a href="/user?name=..">' in html
    page = client.get("/").text
    assert '<a href="/user/alice">' in page


def test_the_page_is_that_of_the_report_with_a_script_more(client: TestClient, served: ServedTrace) -> None:
    page = client.get("/").text
    plain = served.report.html()
    assert page.count("<article") == plain.count("<article") > 25
    page, plain = unescape(page), unescape(plain)
    assert "connect-src 'self'" in page
    assert "connect-src" not in plain
    policy, own = (re.search(r"script-src ([^;]*)", p) for p in (page, plain))
    assert policy is not None
    assert own is not None
    assert policy[1].count("sha256-") == own[1].count("sha256-") + 1
    assert "'unsafe" not in policy[1]


def test_files_that_the_page_links_to_are_there(client: TestClient, served: ServedTrace) -> None:
    links = set(re.findall(r'href="((?:tables/|report\.|guidelines)[^"]*)"', client.get("/").text))
    assert len(links) > 50
    for link in links:
        assert client.get(f"/{link}").status_code == 200, link
    assert client.get("/report.json").json() == served.report.data
    header = client.get("/tables/users/queueing.csv").text.splitlines()[0]
    assert header.startswith("user,")
    for path in ("tables/users/queueing.exe", "tables/../jobs.parquet", "tables/jobs.parquet", "trace/jobs.parquet",
                 "manifest.json", "tables/", "tables/users/queueing"):  # fmt: skip
        assert client.get(f"http://localhost/{path}").status_code == 404, path


def test_by_another_tenant_vc_means_that_column(trace: Trace, served: ServedTrace) -> None:
    served = ServedTrace(trace.by("user"), served.report)
    found = served.answer("overview/status", _part({"where.vc": "alice"}), Stop()).info
    assert found["rows"] == served.answer("overview/status", _part({"where.user": "alice"}), Stop()).info["rows"]
    assert sum(row["jobs"] for row in found["rows"]) == 3


def test_a_partition_that_is_damaged_meanwhile_is_one_line(parts: Trace, served: ServedTrace) -> None:
    served = ServedTrace(parts, served.report)
    for path in parts.path.rglob("day=2020-05-04/*.parquet"):
        path.write_bytes(b"nothing that can be read")
    asked = TestClient(made_app(served), base_url="http://localhost")
    day = {"since": "2020-05-04", "until": "2020-05-05"}
    found = asked.get("/answer/overview/status", params=day)
    assert found.status_code == 500
    assert "the partition jobs/cluster=%41/day=2020-05-04/part-0.parquet is" in found.json()["error"]
    # Another day is answered all the same.
    other = asked.get("/answer/overview/status", params={"since": "2020-05-03", "until": "2020-05-04"})
    assert other.status_code == 200
    page = asked.get("/job/a1")
    assert page.status_code == 500
    assert "is not a Parquet file" in page.text or "is damaged" in page.text
    assert "Traceback" not in page.text


@pytest.mark.parametrize(
    ("given", "facts", "words"),
    [
        ({}, {}, ""),
        ({"where.cluster": "A"}, {}, "only cluster A"),
        ({"where.gpu_model": "V100", "where.size": "1"}, {}, "only GPU model V100, jobs of 1 GPU"),
        ({"since": "2020-05-03", "until": "2020-05-04"}, {}, "only submitted on 3 May 2020"),
        ({"since": "2020-05-03", "until": "2020-06-02"}, {}, "only submitted 3 May to 1 June 2020"),
        ({"since": "2019-12-31", "until": "2020-01-02"}, {}, "only submitted 31 December 2019 to 1 January 2020"),
        ({"since": "2020-05-03T12:30"}, {}, "only submitted from 3 May 2020 12:30 on"),
        ({"until": "2020-05-03"}, {}, "only submitted before 3 May 2020"),
        ({"until": "0001-01-01"}, {}, "only submitted before 1 January 1"),
        (
            {"since": "0001-01-01T00:00", "until": "0001-01-01T05:00"},
            {"timezone": "Etc/GMT+5"},
            "only submitted 1 January 1 00:00 to 1 January 1 00:00",
        ),
        ({"since": "2020-05-03T00:00+08:00"}, {"timezone": "Asia/Shanghai"}, "only submitted from 3 May 2020 on"),
        (
            {"since": "1970-01-03", "until": "1970-01-05T12:00"},
            {"dated": False},
            "only submitted from day 2 to day 4.5",
        ),
        (
            {"since": "1970-01-18T16:00", "until": "1970-01-20T04:30"},
            {"dated": False, "timezone": "Asia/Shanghai", "day_zero": "1970-01-17T16:00:00"},
            "only submitted from day 1, 00:00 to day 2, 12:30",
        ),
    ],
)
def test_a_part_is_said_in_words(given: dict[str, str], facts: dict[str, Any], words: str) -> None:
    assert words_of(_part(given), TraceFacts(**facts)) == words


def test_times_with_a_zone_are_those_of_the_world() -> None:
    assert _part({"since": "2020-05-03T08:00:00+08:00"}).start == dt.datetime(2020, 5, 3)


def test_the_same_part_is_asked_by_the_command(served: ServedTrace) -> None:
    part = served.trace.window(where={"user": ".."})
    frame = run_query(part, "overview/status")
    assert frame["jobs"].to_list() == [1]
