"""What is shown of a job, a node and a user, and the search for them."""

from __future__ import annotations

import datetime as dt
import json
import re
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from tests.serve.conftest import CLIMBING, HOSTILE
from tracekit.report.table_view import link_to
from tracekit.serve.app import made_app
from tracekit.serve.things.job import job
from tracekit.serve.things.node import node
from tracekit.serve.things.through_time import held_through_time
from tracekit.serve.trace import ServedTrace

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.serve.things.thing import Table
    from tracekit.trace import Trace

START = dt.datetime(2020, 5, 3)


def _cells(table: Table) -> list[list[str]]:
    return [[cell["text"] for cell in row] for row in table.rows]


def test_a_job_has_its_attempts_placements_and_neighbours(served: ServedTrace, golden: Golden) -> None:
    with served.whole.connect() as con:
        found = job(con, served.trace, served.facts, "a1")
    golden(found.lead)
    facts = {fact.label: fact.text for fact in found.facts}
    assert (facts["User"], facts["GPUs"], facts["Waited"], facts["Ran"]) == ("alice", "2", "1:00:00", "4:00:00")
    assert facts["Submitted"] == "2020-05-03 00:00:00"
    tables = {table.title: table for table in found.tables}
    assert _cells(tables["Attempts"])[0][:2] == ["0", "completed"]
    assert tables["Placements"].rows[0][1] == {"text": "n1", "title": "", "href": "/node/n1"}
    # b1 ran on n1 from 4:00 to 6:00, a1 from 1:00 to 5:00.
    beside = _cells(tables["Jobs on the same nodes at the same time"])
    assert beside == [["b1", "bob", "db", "4", "completed", "1", "1:00:00"]]


def test_the_course_of_a_jobs_samples_is_their_mean_and_range(served: ServedTrace) -> None:
    with served.whole.connect() as con:
        (chart,) = job(con, served.trace, served.facts, "a1").charts
    rows = next(iter(chart.to_dict()["datasets"].values()))
    # Two GPUs, 60 % and 20 % busy, sampled every 10 minutes from 1:00 to 5:00.
    assert len(rows) == 24
    assert {(r["mean"], r["least"], r["most"]) for r in rows} == {(40.0, 20.0, 60.0)}
    assert rows[0]["time"] == "2020-05-03T01:00Z"


def test_a_job_without_placements_says_so(client: TestClient) -> None:
    page = client.get("/job/c1").text
    assert "does not record where" in page
    assert "The trace shows no other job" in page


def test_a_node_has_its_outages_and_jobs(served: ServedTrace) -> None:
    with served.whole.connect() as con:
        found = node(con, served.trace, served.facts, "n1")
    facts = {fact.label: fact.text for fact in found.facts}
    assert (facts["GPUs"], facts["Times out of service"], facts["Hours out of service"]) == ("8", "1", "2")
    tables = {table.title: _cells(table) for table in found.tables}
    (jobs,) = (cells for title, cells in tables.items() if title.startswith("Jobs that ran"))
    assert [row[0] for row in jobs] == ["a2", "b1", "a1"]
    assert tables["Outages and other events"] == [["2020-05-07 04:00:00", "2020-05-07 06:00:00", "down"]]
    assert [chart.title for chart in found.charts] == ["Its allocated GPUs", "Use of its GPUs"]


def test_gpus_held_through_time_are_held_seconds_over_the_interval(served: ServedTrace) -> None:
    source = "SELECT * FROM (VALUES (2.0, $a, $b), (4.0, $b, NULL), (1.0, NULL, $b)) AS t (gpus, since, until)"
    # 200 intervals of an hour: 2 GPUs in the first two and a half, 4 until the end.
    middle, last = START + dt.timedelta(hours=2.5), START + dt.timedelta(hours=200)
    with served.whole.connect() as con:
        rows = held_through_time(con, source, START, last, a=START, b=middle)
    assert len(rows) == 200
    assert [row["gpus"] for row in rows[:4]] == pytest.approx([2, 2, 3, 4])
    assert rows[-1]["gpus"] == pytest.approx(4)
    assert rows[1]["time"] == "2020-05-03T01:00:00"


def test_a_user_has_numbers_jobs_and_waits(client: TestClient) -> None:
    page = client.get("/user/alice").text
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd><bdi>(.*?)</bdi></dd>", page))
    assert facts["Jobs"] == "3"
    assert facts["GPU-hours"] == "17"
    assert facts["Completed"] == "66.7 %"
    assert facts["Mean wait, with GPUs"] == facts["Median wait, with GPUs"]
    # The report of these jobs alone, and the longest waits first.
    assert 'href="/?where.user=alice"' in page
    waits = page.partition("The longest waits")[2]
    assert re.findall(r'href="/job/(\w+)"', waits) == ["a3", "a2", "a1"]


@pytest.mark.parametrize("kind", ["job", "node", "user"])
@pytest.mark.parametrize(
    "name", ["nobody", "'; DROP TABLE jobs; --", "<script>alert(1)</script>", "%", "\u202e", "a" * 900]
)
def test_what_is_not_there_is_a_page_that_says_so(client: TestClient, kind: str, name: str) -> None:
    found = client.get(link_to(kind, name) or "")
    assert found.status_code == 404
    assert f"the trace has no {kind}" in found.text
    assert "<script>alert" not in found.text


AWKWARD = ["a\nb", "\n", "x\r\ny", "a\0b", "a" * 5000, "ü" * 5000, "a/b\n", "?q#", "\u202e"]


@pytest.fixture(scope="module")
def awkward(make_trace: Callable[..., Trace], served: ServedTrace) -> TestClient:
    """Return a browser of a server whose jobs, nodes and users have awkward names."""
    at = {"start_time": START, "end_time": START + dt.timedelta(hours=1), "gpu_count": 1}
    trace = make_trace(
        jobs=[{"job_id": n, "user": n, "status": "completed", "submit_time": START, **at} for n in AWKWARD],
        attempts=[{"job_id": n, "attempt": 0, **at} for n in AWKWARD],
        placements=[{"job_id": n, "attempt": 0, "node_id": n, **at} for n in AWKWARD],
    )
    return TestClient(made_app(ServedTrace(trace, served.report)), base_url="http://localhost")


@pytest.mark.parametrize("kind", ["job", "node", "user"])
@pytest.mark.parametrize("name", AWKWARD, ids=range(len(AWKWARD)))
def test_awkward_names_are_opened_and_others_like_them_are_not_there(awkward: TestClient, kind: str, name: str) -> None:
    path = f"http://localhost/{kind}/{quote(name)}"
    assert awkward.get(path).status_code == 200
    assert awkward.get(f"http://localhost/{kind}?name={quote(name)}").status_code == 200
    other = awkward.get(f"{path}x")
    assert other.status_code == 404
    assert f"the trace has no {kind}" in other.text


@pytest.mark.parametrize("name", [HOSTILE, CLIMBING])
def test_hostile_jobs_are_opened_and_inert(client: TestClient, name: str) -> None:
    found = client.get(link_to("job", name) or "")
    assert found.status_code == 200
    assert "<img" not in found.text
    heading = re.search(r"<h1>Job <bdi>(.*?)</bdi></h1>", found.text)
    assert heading is not None
    assert unescape(heading[1]) == name


def test_hostile_users_are_opened_and_inert(client: TestClient) -> None:
    for name in (HOSTILE, ".."):
        found = client.get(link_to("user", name) or "")
        assert found.status_code == 200
        body = found.text.partition("<body>")[2].partition("<script")[0]  # tracekit's own scripts come last
        assert "<img" not in body
        assert "The latest jobs" in body
        data = re.search(r'<script type="application/json" id="chart-data">(.*?)</script>', found.text)
        assert data is not None
        json.loads(data[1])  # no name ends the element that holds it


@pytest.mark.parametrize(
    ("words", "target"),
    [("a1", "/job/a1"), (" n1 ", "/node/n1"), ("alice", "/user/alice"), ("..", "/user?name=..")],
)
def test_an_exact_name_opens_what_it_names(client: TestClient, words: str, target: str) -> None:
    found = client.get("/find", params={"q": words})
    assert (found.status_code, found.headers["location"]) == (303, target)


def test_a_part_of_a_name_lists_what_holds_it(client: TestClient) -> None:
    page = client.get("/find", params={"q": "ALI"}).text
    assert re.findall(r'href="(/(?:job|node|user)/[^"]*)"', page) == ["/user/alice"]
    page = client.get("/find", params={"q": "1"}).text
    assert '<a href="/node/m1">' in page
    assert '<a href="/job/a1">' in page


@pytest.mark.parametrize("words", ["", "zzz", "' OR 1=1 --", "<script>", "%", "_", "\0"])
def test_a_search_for_nothing_known_finds_nothing(client: TestClient, words: str) -> None:
    found = client.get("/find", params={"q": words})
    assert found.status_code == 200
    assert 'href="/job/a1"' not in found.text
    assert "<script>" not in found.text.partition("<main")[2].partition("</main>")[0]


@pytest.mark.parametrize("path", ["/job", "/job/", "/nothing", "/job/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd"])
def test_no_address_is_a_path_of_a_file(client: TestClient, path: str) -> None:
    found = client.get(f"http://localhost{path}")
    assert found.status_code in {404, 307}
    assert "root:x:" not in found.text
