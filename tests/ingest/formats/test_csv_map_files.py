"""Files of mapped logs: kinds of file, and files that do not fit the mapping."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.ingest.formats.mapped_logs import BASIC, simple
from tracekit.errors import SourceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    Mapped = Callable[[str, dict[str, str | bytes]], Trace]


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "parquet", "headerless", "gz"])
def test_every_kind_of_file_gives_the_same_rows(mapped: Mapped, rows: Rows, kind: str) -> None:
    columns = 'job_id = "id"\nstart_time = "s"\ngpu_count = "g"\nname = "n"'
    frame = pl.DataFrame({"id": [1, 2], "s": [10, None], "g": [1.5, 2.0], "n": ["a", None]})
    extra = ""
    files: dict[str, str | bytes]
    if kind == "tsv":
        files = {"a.tsv": frame.write_csv(separator="\t")}
    elif kind == "jsonl":
        files = {"a.jsonl": frame.write_ndjson() + "\n"}
    elif kind == "parquet":
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        files = {"a.parquet": buffer.getvalue()}
    elif kind == "gz":
        files = {"a.csv.gz": gzip.compress(frame.write_csv().encode())}
    else:
        extra = 'delimiter = "|"\nheader = ["id", "s", "g", "n"]'
        files = {"a.txt": frame.write_csv(separator="|", include_header=False)}
    trace = mapped(simple(columns, extra), files)
    assert rows(trace, "jobs") == [
        {"job_id": "1", "name": "a", "start_time": "1970-01-01 00:00:10", "gpu_count": 1.5, "attempt_count": 1},
        {"job_id": "2", "gpu_count": 2.0, "attempt_count": 0},
    ]


def test_times_and_lists_of_parquet_keep_their_types(mapped: Mapped, rows: Rows) -> None:
    frame = pl.DataFrame({"id": ["a"], "t": ["2017-10-03 17:00:00"], "h": [["n1", "n2"]], "b": [True]}).with_columns(
        t=pl.col("t").str.to_datetime(), z=pl.col("t").str.to_datetime().dt.replace_time_zone("UTC")
    )
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    mapping = """
    [source]
    timezone = "Europe/Berlin"
    [jobs.columns]
    job_id = "id"
    submit_time = "t"
    start_time = "z"
    preemptible = "b"
    [jobs.nodes]
    column = "h"
    """
    trace = mapped(mapping, {"a.parquet": buffer.getvalue()})
    (job,) = rows(trace, "jobs")
    assert (job["submit_time"], job["start_time"]) == ("2017-10-03 15:00:00", "2017-10-03 17:00:00")
    assert job["preemptible"] is True
    assert [r["node_id"] for r in rows(trace, "placements")] == ["n1", "n2"]


def test_json_lines_that_are_not_objects_are_rejected(mapped: Mapped, rows: Rows) -> None:
    text = '{"a": {"b.c": [{"d": 1}]}}\n{broken\n[1]\n\n{"a": {"b.c": [{"d": true}]}}\n{"a": 3}'
    trace = mapped(simple("job_id = 'a.b.c.0.d'"), {"a.jsonl": text})
    assert [r["job_id"] for r in rows(trace, "jobs")] == ["1", "true"]
    assert [(r["line"], r["reason"]) for r in rows(trace, "rejects")] == [
        (2, "is not JSON"),
        (3, "is not a JSON object"),
        (6, "is missing"),
    ]


def test_line_numbers_are_ids_and_several_files_keep_them_apart(mapped: Mapped, rows: Rows) -> None:
    mapping = simple("job_id = { line = true }\ngpu_count = 'g'")
    assert [r["job_id"] for r in rows(mapped(mapping, {"a.csv": "g\n1\n\n2\n"}), "jobs")] == ["2", "4"]
    trace = mapped(mapping, {"a.csv": "g\n1\n", "b.csv": "g\n2\n"})
    assert [r["job_id"] for r in rows(trace, "jobs")] == ["a.csv:2", "b.csv:2"]


@pytest.mark.parametrize(
    ("mapping", "files", "message"),
    [
        (
            simple('job_id = "jobid"'),
            {"a.csv": "job_id\n1\n"},
            r"map\.toml, key jobs\.columns\.job_id: a\.csv has no column 'jobid'; did you mean 'job_id'\?$",
        ),
        (
            BASIC,
            {"a.csv": "id\n1\n"},
            r"map\.toml, key jobs\.files: no file in the source matches jobs\*\.csv; the source has: a\.csv$",
        ),
        (
            simple('job_id = "id"') + '[nodes.columns]\nnode_id = "id"',
            {"a.csv": "id\n1\n"},
            r"map\.toml, key nodes\.files: a\.csv also belongs to jobs; name each section's own files$",
        ),
        (simple('job_id = "id"'), {"a.csv": ""}, r"^a\.csv: is empty; the header line is missing$"),
        (simple('job_id = "id"'), {"a.csv": "id,id\n1,1\n"}, r"^a\.csv, line 1: the header names 'id' twice"),
        (simple('job_id = "id"'), {"a.parquet": b"PAR1 no"}, r"^a\.parquet: cannot be read as Parquet: "),
    ],
)
def test_a_file_that_does_not_fit_the_mapping_is_one_line(
    mapped: Mapped, mapping: str, files: dict[str, str | bytes], message: str
) -> None:
    with pytest.raises((UsageError, SourceError), match=message) as raised:
        mapped(mapping, files)
    assert "\n" not in str(raised.value)


def test_without_a_mapping_the_format_says_so(ingest: Ingest) -> None:
    with pytest.raises(UsageError, match=r"^--map: the format csv needs a mapping file; see docs/mapping\.md$"):
        ingest({"a.csv": "id\n1\n"}, format_name="csv")


def test_a_mapping_wins_over_what_files_look_like(mapped: Mapped, rows: Rows) -> None:
    header = "JobID|Submit|Start|End|State\n"
    files: dict[str, str | bytes] = {
        f"jobs-{n}.csv": f"{header}{n}|2024-03-04T08:00:00|2024-03-04T08:00:00|2024-03-04T09:00:00|COMPLETED\n"
        for n in (1, 2)
    }
    columns = 'job_id = "JobID"\nsubmit_time = "Submit"\nstart_time = "Start"\nend_time = "End"\n'
    trace = mapped(f'[source]\ndelimiter = "|"\n[jobs]\nfiles = "jobs-*.csv"\n[jobs.columns]\n{columns}', files)
    assert [row["job_id"] for row in rows(trace, "jobs")] == ["1", "2"]
