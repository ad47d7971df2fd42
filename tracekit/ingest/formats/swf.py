"""Read the Standard Workload Format, version 2.2, of the Parallel Workloads Archive.

Origin: the archive at www.cs.huji.ac.il/labs/parallel/workload. Each log names its own source and terms. Study: Chapin
et al., Benchmarks and Standards for the Evaluation of Parallel Job Schedulers, JSSPP'99. Times are seconds since
UnixStartTime, and the time zone for hours of the day is TimeZoneString. Either may be missing from a log.

Known faults of logs in this format: -1 means unknown in every field. The codes for failed (0) and cancelled (5) are
used loosely. Both processor counts can be missing. Header keys may repeat or be missing. A swapped-out job has one line
for the whole job, then one line for each part, whose wait counts from the end of the previous part. The format has no
GPUs, but the processors_are_gpus option treats processors as GPUs. A Trace has no columns for CPU time, used memory,
programs or dependencies on earlier jobs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.errors import SourceError
from tracekit.ingest.cells import count_lost_rows, limited, typed_cells
from tracekit.ingest.csv_table import SeenKeys
from tracekit.ingest.derived import disagrees, single_attempts
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, SourceFile, TimeFrame
from tracekit.ingest.localtime import is_zone
from tracekit.ingest.records import line_blocks
from tracekit.ingest.time_faults import RecordTimes, TimeColumns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.ingest.sink import OpenedFile

MAX_LINE = 65_536
"""Maximum length of a line [bytes]. Longer lines are rejected."""

_UNKNOWN = ["-1", "-1.0", "-1.00"]
_STATUS = {0: "failed", 1: "completed", 5: "cancelled"}
_PART_STATUS = {2: "preempted", 3: "completed", 4: "failed"}
_CANCELLED = 5
_LATEST_START = 4_000_000_000
"""Latest start of a log [s since 1970]. With a later start, its last times would be out of range."""
_LARGEST = {"processors": 1e9, "requested_processors": 1e9, "requested_memory": 1e15}
_SUBMITTED = TimeColumns({"date": "submit_time"}, names="job")
_KEY = re.compile(r";\s*([A-Za-z]+)\s*:\s*(.*?)\s*")
_HEADER_LINES = 10_000


def _looks_right(head: bytes) -> bool:
    for line in head.split(b"\n")[:1000]:
        text = line.strip()
        if text and not text.startswith(b";"):
            return len(text.split()) == 18 and re.fullmatch(rb"[-+.\d\s]+", text) is not None
    return re.search(rb"(?m)^;\s*(UnixStartTime|MaxJobs|MaxProcs)\s*:", head) is not None


class SwfFormat(Format):
    """One log in the Standard Workload Format."""

    name = "swf"
    title = "Standard Workload Format 2.2"
    raw_files = (RawFile("swf", "job log", r".+\.swf", _looks_right),)
    options: ClassVar[Mapping[str, Option]] = {
        "processors_are_gpus": Option("no", "whether the log's processors are GPUs", ("no", "yes")),
        "vc": Option("queue", "which number is the tenant unit", ("queue", "group")),
    }
    no_append: ClassVar[str] = "each log numbers its jobs from 1"

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read one log."""
        files = found.get("swf")
        if len(files) > 1:
            raise SourceError(
                f"contains several logs: {', '.join(f.path for f in files[:4])}",
                hint="job numbers repeat; name one file",
            )
        header = _SwfHeader()
        _read_log(files[0], header, sink)
        header.add_notes(sink)
        return header.frame()


class _SwfHeader:
    """The keys in the comments before the first job."""

    def __init__(self) -> None:
        self.keys: dict[str, list[str]] = {}
        self._lines = 0

    def add(self, comment: str) -> None:
        self._lines += 1
        match = _KEY.fullmatch(comment)
        if match and match[2] and self._lines <= _HEADER_LINES:
            self.keys.setdefault(match[1], []).append(match[2][:200])

    def text(self, key: str) -> str | None:
        return self.keys.get(key, [None])[0]

    def number(self, key: str) -> int | None:
        """Return the number at the beginning of a key's value; archives add remarks after it."""
        match = re.match(r"\d{1,15}\b", self.text(key) or "")
        return int(match[0]) if match else None

    @property
    def start_s(self) -> int | None:
        """Start of the log [s since 1970]. A start of 0 means unknown."""
        start = self.number("UnixStartTime")
        return start if start and start <= _LATEST_START else None

    @property
    def zone(self) -> str | None:
        zone = self.text("TimeZoneString")
        return zone if zone and is_zone(zone) else None

    def names(self, key: str) -> dict[str, str]:
        """Return the names of numbered queues, without names that two queues share."""
        pairs = [text.split(maxsplit=1) for text in self.keys.get(key, [])]
        named = {p[0]: p[1] for p in pairs if len(p) == 2 and p[0].isdigit()}
        given = list(named.values())
        return {number: name for number, name in named.items() if given.count(name) == 1}

    def add_notes(self, sink: Sink) -> None:
        for key in ("MaxNodes", "MaxProcs"):
            if self.text(key):
                sink.note(
                    f"the header gives {key}: {self.text(key)}; without a machine list, a total cannot fill a table"
                )
        sink.note("a Trace has no columns for CPU time, used memory, programs and dependencies; they are ignored")
        if self.start_s and not self.zone:
            sink.note("the header names no known time zone (TimeZoneString), so hours of the day have no meaning")

    def frame(self) -> TimeFrame:
        if self.start_s is None:
            return TimeFrame.relative(
                "times are seconds since the start of the log; its date is unknown (no UnixStartTime)"
            )
        note = "" if self.zone else "the log names no known time zone"
        return TimeFrame("absolute", self.zone or "UTC", hour_of_day=self.zone is not None, note=note)


def _read_log(file: SourceFile, header: _SwfHeader, sink: Sink) -> None:
    unfinished: pl.DataFrame | None = None
    seen = SeenKeys(("job",))
    with sink.opened(file) as opened:
        times = RecordTimes(sink, file.path)
        for found in _typed_lines(opened, header, sink):
            typed = _possible(found, times, header.start_s or 0)
            rows = _grouped(typed if unfinished is None else pl.concat([unfinished, typed]))
            # The parts of a job may continue in the next block.
            last = rows["bundle"] == rows["bundle"].max()
            unfinished = rows.filter(last).drop("bundle", "part")
            _write(rows.filter(~last), header, seen, opened, sink)
        if unfinished is not None:
            _write(_grouped(unfinished), header, seen, opened, sink)
        stated = header.number("MaxRecords")
        if stated is not None:
            sink.check(
                "header_record_count_disagrees",
                abs(stated - opened.account.records),
                None,
                "difference in records from the number in the header (MaxRecords)",
            )


def _possible(rows: pl.DataFrame, times: RecordTimes, base: int) -> pl.DataFrame:
    """Return the rows with impossible submissions, waits and run times set to NULL."""
    dated = times.dated(rows.with_columns(date=_instant(pl.col("submit"), base)), _SUBMITTED)
    known = dated.with_columns(submit=pl.when(pl.col("date").is_not_null()).then("submit")).drop("date")
    return times.spans(known, {"wait": "queue_s", "run": "run_s"}, "job")


def _typed_lines(opened: OpenedFile, header: _SwfHeader, sink: Sink) -> Iterator[pl.DataFrame]:
    """Yield the usable records with `line` and `raw`, and collect the header."""
    spec = limited(schema.source("swf", "swf"), _LARGEST)
    number = 1
    begun = False
    for lines in line_blocks(opened.stream, MAX_LINE):
        if number == 1:
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        raw = pl.DataFrame({"raw": lines}, schema={"raw": pl.Binary}).with_row_index("line", number)
        number += len(lines)
        texts = raw.with_columns(pl.col("line").cast(pl.Int64), text=_decoded(raw["raw"]).str.strip_chars())
        comment = texts["text"].str.starts_with(";").fill_null(texts["raw"].bin.starts_with(b";"))
        record = ~comment & (texts["text"] != "").fill_null(value=True)
        first = int(record.arg_true()[0]) if record.any() else texts.height
        if not begun:
            for text in texts["text"].head(first).filter(comment.head(first)).drop_nulls():
                header.add(text[:MAX_LINE])
        records = texts.filter(record)
        if records.height:
            begun = True
            opened.count(records.height)
            yield from _typed(records, opened, spec, sink)


def _decoded(raw: pl.Series) -> pl.Series:
    """Return lines as strings, or NULL if they are not UTF-8: comments often have other encodings."""
    try:
        return raw.cast(pl.String)
    except pl.exceptions.ComputeError:
        return pl.Series([_text(line) for line in raw], dtype=pl.String)


def _text(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _typed(records: pl.DataFrame, opened: OpenedFile, spec: schema.TableSchema, sink: Sink) -> Iterator[pl.DataFrame]:
    width = len(spec.names)
    size = records["raw"].bin.size()
    # A line that is too long is not split into fields: it could have too many.
    text = pl.when(size <= MAX_LINE).then(pl.col("text"))
    fields = records.select(fields=text.str.replace_all(r"\s+", " ").str.split(" "))["fields"]
    whole = (fields.list.len() == width).fill_null(value=False)
    for row in (~whole).arg_true():
        line, raw, words = records.row(row)
        if size[row] > MAX_LINE:
            reason = f"longer than {MAX_LINE} bytes"
        elif words is None:
            reason = "is not valid UTF-8"
        else:
            reason = f"expected {width} fields, found {len(fields[row])}"
        opened.reject(line, None, reason, raw[:MAX_LINE].removesuffix(b"\r"))
    good, cells = records.filter(whole), fields.filter(whole)
    known = pl.DataFrame({name: cells.list.get(i) for i, name in enumerate(spec.names)}).with_columns(
        pl.when(~pl.all().is_in(_UNKNOWN)).then(pl.all())
    )
    frame, bad, lost = typed_cells(known, spec)
    for cell in bad:
        line, raw, _ = good.row(cell.row)
        opened.reject(line, cell.column, cell.reason, raw.removesuffix(b"\r"))
    usable = np.ones(frame.height, dtype=bool)
    usable[[cell.row for cell in bad]] = False
    for column, reason, rows in lost:
        count_lost_rows(sink, column, reason, rows, known[column], usable)
    frame = frame.with_columns(good["line"], good["raw"]).filter(pl.Series(usable))
    if frame.height:
        yield frame


def _grouped(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `part`, and `bundle`: the line for a whole job together with the lines of its parts."""
    rows = rows.with_columns(part=pl.col("status").is_in(list(_PART_STATUS)).fill_null(value=False))
    begins = ~pl.col("part") | (pl.col("job") != pl.col("job").shift(1)).fill_null(value=True)
    return rows.with_columns(bundle=begins.cast(pl.Int64).cum_sum())


def _write(rows: pl.DataFrame, header: _SwfHeader, seen: SeenKeys, opened: OpenedFile, sink: Sink) -> None:
    heads = rows.group_by("bundle", maintain_order=True).first()
    new = np.ones(heads.height, dtype=bool)
    new[seen.repeats(heads, new)] = False
    fresh = heads.filter(pl.Series(new))
    repeated = rows.join(fresh, on="bundle", how="anti", maintain_order="left")
    for line, raw in repeated.select("line", "raw").iter_rows():
        opened.reject(line, "job", "repeats the key of an earlier record", raw.removesuffix(b"\r"))
    if not fresh.height:
        return
    parts = rows.filter("part").join(fresh.select("bundle"), on="bundle", how="semi", maintain_order="left")
    sink.retries = sink.retries or parts.height > 0
    attempts = _parts(parts, fresh)
    jobs = _jobs(_with_parts(fresh, attempts), header, sink)
    _count_contradictions(fresh, attempts, header, sink)
    sink.write("jobs", jobs.drop("started"))
    base = header.start_s or 0
    gpus = _gpus(sink)
    of_parts = attempts.select(
        job_id=pl.col("job").cast(pl.String),
        attempt="attempt",
        start_time=_instant(pl.col("start"), base),
        end_time=_instant(pl.col("end"), base),
        run_s="run",
        wait_s="wait",
        gpu_count=gpus,
        status=pl.col("status").replace_strict(_PART_STATUS, return_dtype=pl.String),
    )
    derived = single_attempts(jobs.filter("started"))
    sink.write("attempts", pl.concat([derived, of_parts]))


def _processors() -> pl.Expr:
    return pl.coalesce("processors", "requested_processors")


def _gpus(sink: Sink) -> pl.Expr:
    yes = sink.options["processors_are_gpus"] == "yes"
    return _processors() if yes else pl.lit(None, dtype=pl.Float64)


def _instant(seconds: pl.Expr, base: int) -> pl.Expr:
    return ((seconds.clip(-1e11, 1e11) * 1e6).round().cast(pl.Int64) + base * 1_000_000).cast(pl.Datetime("us"))


def _parts(parts: pl.DataFrame, heads: pl.DataFrame) -> pl.DataFrame:
    """Return the parts as attempts, with times in seconds. Each starts `wait` after the end of the previous part."""
    first = pl.col("attempt") == 0
    head = heads.select("bundle", head_submit="submit", head_wait="wait")
    steps = (
        parts.join(head, on="bundle", how="left", maintain_order="left")
        .with_columns(attempt=pl.int_range(pl.len()).over("bundle"))
        .with_columns(wait=pl.when(first).then(pl.coalesce("wait", "head_wait")).otherwise("wait"))
        .with_columns(step=pl.col("wait") + pl.col("run"))
    )
    # After a part of unknown length, the times of the following parts are unknown.
    lost = pl.col("step").is_null().cast(pl.Int64).cum_sum().over("bundle") > 0
    ended = steps.with_columns(end=pl.when(~lost).then(pl.col("head_submit") + pl.col("step").cum_sum().over("bundle")))
    before = pl.when(first).then("head_submit").otherwise(pl.col("end").shift(1).over("bundle"))
    return ended.with_columns(start=before + pl.col("wait"))


def _with_parts(heads: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    """Add the columns that are derived from each job's parts."""
    summed = attempts.group_by("bundle").agg(
        parts=pl.len().cast(pl.Int64),
        first_start=pl.col("start").first(),
        first_wait=pl.col("wait").first(),
        last_end=pl.col("end").last(),
        last_status=pl.col("status").last(),
    )
    return heads.join(summed, on="bundle", how="left", maintain_order="left")


def _never_started() -> pl.Expr:
    """Return whether a job was cancelled in the queue, that is, has no run time and no processors."""
    idle = pl.col("run").is_null() | ((pl.col("run") == 0) & ~(pl.col("processors") > 0).fill_null(value=False))
    return (pl.col("status") == _CANCELLED).fill_null(value=False) & idle & ~pl.col("part")


def _jobs(heads: pl.DataFrame, header: _SwfHeader, sink: Sink) -> pl.DataFrame:
    base = header.start_s or 0
    split, waiting = pl.col("parts").is_not_null(), _never_started()
    start = pl.col("submit") + pl.col("wait")
    # A job that was cancelled in the queue left it after its wait.
    alone_end = start + pl.when(waiting).then(pl.col("run").fill_null(0)).otherwise("run")
    goes_on = pl.col("part") & (pl.col("last_status") == 2)
    timed = heads.with_columns(
        instant_start=pl.when(split).then("first_start").when(~waiting).then(start),
        instant_end=pl.when(split & ~goes_on.fill_null(value=False)).then("last_end").when(~split).then(alone_end),
        whole_run=pl.when(~waiting).then("run"),
        started=~split & ~waiting,
    )
    word = pl.when(~pl.col("part")).then("status").otherwise("last_status")
    words = _STATUS | {3: "completed", 4: "failed"}
    gpus = _gpus(sink)
    asked = pl.coalesce("requested_processors", "processors")
    vc = sink.options["vc"]
    names = header.names("Queue")
    queue = pl.col("queue").cast(pl.String).replace(names)
    partition = pl.col("partition").cast(pl.String).replace(header.names("Partition"))
    return timed.select(
        "started",
        job_id=pl.col("job").cast(pl.String),
        cluster=pl.lit(header.text("Computer"), dtype=pl.String),
        vc=queue if vc == "queue" else pl.col(vc).cast(pl.String),
        user=pl.col("user").cast(pl.String),
        group=pl.col("group").cast(pl.String),
        status=word.replace_strict(words, default="unknown", return_dtype=pl.String),
        source_status=word.cast(pl.String),
        submit_time=_instant(pl.col("submit"), base),
        start_time=_instant(pl.col("instant_start"), base),
        end_time=_instant(pl.col("instant_end"), base),
        queue_s=pl.when(split).then("first_wait").when(~waiting).then("wait"),
        run_s=pl.when(split).then(pl.col("instant_end") - pl.col("instant_start")).otherwise("whole_run"),
        gpu_count=gpus,
        cpu_count=pl.lit(None, dtype=pl.Float64) if sink.options["processors_are_gpus"] == "yes" else _processors(),
        memory_gib=pl.col("requested_memory") * asked / 1024**2,
        attempt_count=pl.when(split).then("parts").otherwise((~waiting).cast(pl.Int64)),
        time_limit_s="requested_time",
        partition=pl.coalesce(partition, queue),
    )


def _count_contradictions(heads: pl.DataFrame, attempts: pl.DataFrame, header: _SwfHeader, sink: Sink) -> None:
    ran = attempts.group_by("bundle").agg(parts_s=pl.when(pl.col("run").is_not_null().all()).then(pl.col("run").sum()))
    limit = header.number("MaxProcs")
    word = pl.col("status")
    odd = heads.join(ran, on="bundle", how="left", maintain_order="left").select(
        job=pl.col("job").cast(pl.String),
        unknown_status_word=word.is_not_null() & ~word.is_in([*_STATUS, *_PART_STATUS]),
        cancelled_before_start=_never_started(),
        parts_without_job=pl.col("part"),
        parts_run_disagrees=~pl.col("part") & disagrees(pl.col("parts_s"), pl.col("run")),
        processors_over_header=pl.col("processors") > pl.lit(limit, dtype=pl.Int64),
        no_processors=_processors().is_null(),
    )
    sink.check_flags(odd, _MEANINGS, odd["job"])
    dated = attempts.join(
        heads.filter(~pl.col("part")).select("bundle"), on="bundle", how="semi", maintain_order="left"
    )
    meaning = "parts of a job with their own submission time, which is ignored"
    sink.check_rows("part_with_submission", dated["submit"].is_not_null(), meaning, dated["job"].cast(pl.String))


_MEANINGS = {
    "unknown_status_word": "records with a status number that the format does not define; their status is 'unknown'",
    "cancelled_before_start": "jobs cancelled in the queue, with no run time and no processors; they have no attempt",
    "parts_without_job": "jobs with lines only for their parts, not for the whole job",
    "parts_run_disagrees": "jobs whose run time differs from the sum of their parts; the parts are used",
    "processors_over_header": "jobs with more processors than the machine has according to the header (MaxProcs)",
    "no_processors": "jobs whose allocated and requested processors are both unknown",
}

FORMAT = SwfFormat()
