"""The mapping file: every mistake is one line with the file, its line and the key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.errors import UsageError
from tracekit.ingest.mapping import load_mapping, template

if TYPE_CHECKING:
    from pathlib import Path

JOBS = '[jobs.columns]\njob_id = "id"\n'
LONG = '[telemetry.x]\nlayout = "long"\ntime = "t"\nmetric = "m"\nvalue = "v"\nnode = "n"\n'


def refusal(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "map.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(UsageError) as raised:
        load_mapping(path)
    message = str(raised.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message.removeprefix(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[source\n", ", line 1: is not TOML: Expected ']' at the end of a table declaration; see docs/mapping.md"),
        ('[source]\n\nx = "', ", line 3: is not TOML: Unterminated string; see docs/mapping.md"),
        (b"\xff", ": is not UTF-8 text; save the mapping as UTF-8"),
        (
            "",
            ": fills no table; write [jobs.columns]; tables: jobs, nodes, capacity, job_usage, node_events, telemetry",
        ),
        ("[job.columns]", ", line 1: job: no such key; did you mean 'jobs'?"),
        ("[source]\ntimezon = 'UTC'", ", line 2: source.timezon: no such key; did you mean 'timezone'?"),
        (
            "[source]\ntimezone = 'Europe/Berln'",
            ", line 2: source.timezone: 'Europe/Berln' is not a time zone; did you mean 'Europe/Berlin'?",
        ),
        (
            LONG + 'gpu = "g"\ngpu_metrics = { memory_used_gib = { column = "mem", unit = "quantity" } }',
            (
                ", line 1: telemetry.x: in the long layout, memory_used_gib must be a number; "
                "give its unit, or use the row layout"
            ),
        ),
        (
            "[source]\ntimezone = 'qqqq'",
            ", line 2: source.timezone: 'qqqq' is not a time zone; give an IANA name such as Europe/Berlin",
        ),
        ("[source]\ntimezone = 5", ', line 2: source.timezone: 5 is not a text; write it in quotes: "..."'),
        (
            "[source]\ntime_base = 'relativ'",
            ", line 2: source.time_base: 'relativ' is not an allowed value; did you mean 'relative'?",
        ),
        (
            "[source]\ntime_base = 'relative'\ntimezone = 'UTC'",
            ", line 3: source.timezone: relative times have no zone; remove it",
        ),
        (
            "[source]\ntime_base = 'relative'\ntime_format = 'iso8601'",
            ", line 3: source.time_format: relative times are numbers; use one of: epoch_s, epoch_ms, epoch_us",
        ),
        (
            "[source]\ntime_format = '%H:%M'",
            (
                ", line 2: source.time_format: '%H:%M' is not a time format; use iso8601, epoch_s, epoch_ms, epoch_us, "
                "or a date such as %Y-%m-%d %H:%M:%S"
            ),
        ),
        ("[source]\nmissing = [1]", ", line 2: source.missing[1]: 1 is not a text; write it in quotes"),
        (
            "[source]\ndelimiter = '||'",
            r', line 2: source.delimiter: is not a single plain character; such as ",", ";", "|" or "\\t"'.replace(
                r"\\t", r"\t"
            ),
        ),
        (
            "[source]\nheader = false",
            ', line 2: source.header: is not a list of column names; if there is no header line, write ["a", "b", ...]',
        ),
        ("jobs = 3", ", line 1: jobs: 3 is not a table; write [jobs]"),
        ("[jobs]\nfiles = 'a'", ", line 1: jobs: has no columns; its keys are: columns, files, type,"),
        ("[jobs.columns]\nuser = 'u'", ', line 1: jobs.columns: does not define job_id; add job_id = "..."'),
        (JOBS + "gpus = 'g'", ", line 3: jobs.columns.gpus: no such key; choose one of: "),
        (JOBS + "gpu_cuont = 'g'", ", line 3: jobs.columns.gpu_cuont: no such key; did you mean 'gpu_count'?"),
        (
            JOBS + "status = 's'",
            ", line 3: jobs.columns.status: cannot be mapped here; write [jobs.status] with column and lists of words",
        ),
        (
            JOBS + "user = 3",
            ", line 3: jobs.columns.user: 3 is neither a text nor a table; write it in quotes",
        ),
        (JOBS + "user = {colum = 'x'}", ", line 3: jobs.columns.user.colum: no such key; did you mean 'column'?"),
        (
            JOBS + "user = {regex = 'x'}",
            ", line 3: jobs.columns.user: needs exactly one of column, columns, expression, file, line and value",
        ),
        (
            JOBS + "run_s = {column = 'x', unit = 'minutes'}",
            ", line 3: jobs.columns.run_s.unit: 'minutes' is not an allowed value; did you mean 'min'?",
        ),
        (
            JOBS + "user = {column = 'x', unit = 's'}",
            ", line 3: jobs.columns.user.unit: has no effect on user with column; remove it",
        ),
        (
            JOBS + "run_s = {expression = 'x', unit = 'clock'}",
            (
                ", line 3: jobs.columns.run_s.unit: 'clock' needs text, but an expression gives a number; "
                "use column, or another unit"
            ),
        ),
        (
            JOBS + "gpu_count = {column = 'x', regex = '(a'}",
            (
                ", line 3: jobs.columns.gpu_count.regex: bad regular expression '(a': unclosed group; "
                "use Rust syntax, without look-around"
            ),
        ),
        (
            JOBS + "gpu_count = {expression = 'a **'}",
            (
                ", line 3: jobs.columns.gpu_count.expression: 'a **' is not arithmetic: numbers, column names, + - * / "
                "and parentheses"
            ),
        ),
        (
            JOBS + "user = {expression = 'a'}",
            ', line 3: jobs.columns.user.expression: user is not a number; use column = "..."',
        ),
        (
            JOBS + "gpu_count = {line = true}",
            ", line 3: jobs.columns.gpu_count.line: line = true numbers records, so it needs a text or integer",
        ),
        (
            JOBS + "gpu_count = {value = 'x'}",
            ", line 3: jobs.columns.gpu_count.value: 'x' does not fit gpu_count (number)",
        ),
        (JOBS + "gpu_count = {value = -1}", ", line 3: jobs.columns.gpu_count.value: is below 0"),
        (
            JOBS + "workload = {value = 'train'}",
            ", line 3: jobs.columns.workload.value: 'train' is not a workload; did you mean 'training'?",
        ),
        (
            JOBS + "submit_time = {value = 'x'}",
            ', line 3: jobs.columns.submit_time.value: submit_time cannot be constant; use column = "..."',
        ),
        (
            JOBS + "workload = {column = 'x', words = {trainin = ['a']}}",
            ", line 3: jobs.columns.workload.words.trainin: no such key; did you mean 'training'?",
        ),
        (
            JOBS + "[jobs.status]\ncompleted = ['a']",
            ", line 3: jobs.status: does not name the status column",
        ),
        (
            JOBS + "[jobs.status]\ncolumn = 's'\ncomplete = ['a']",
            ", line 5: jobs.status.complete: no such key; did",
        ),
        (
            JOBS + "[jobs.status]\ncolumn = 's'\ncompleted = ['a']\nfailed = ['a']",
            ", line 6: jobs.status.failed: 'a' is also under completed; keep one of them",
        ),
        (
            JOBS + "[jobs.status]\ncolumn = 's'\nwhen_missing = 'run'",
            ", line 5: jobs.status.when_missing: 'run' is not an allowed value; ",
        ),
        (
            JOBS + "[jobs.nodes]\nseparator = ';'",
            ", line 3: jobs.nodes: has no column; its keys are: column, sep",
        ),
        (
            JOBS + "[jobs.nodes]\ncolumn = 'h'\npattern = '(.*)'",
            ", line 5: jobs.nodes.pattern: the group '1' is not allowed; name groups node, gpu_index, gpu_count",
        ),
        (
            JOBS + "[jobs.nodes]\ncolumn = 'h'\npattern = '(?<gpu_count>.*)'",
            ", line 5: jobs.nodes.pattern: has no group 'node'; write (?<node>...)",
        ),
        (
            LONG + "server = '(?<node>.*)'\nhost_metrics = {cpu_pct = 'c'}",
            ", line 7: telemetry.x.server: no such key; choose one of: gpu, job, metric, node, time, uuid, value",
        ),
        (
            "[source]\ndoubled_hour = 'frist'",
            ", line 2: source.doubled_hour: 'frist' is not an allowed value; did you mean 'first'?",
        ),
        ("[telemetry.x]\ntime = 't'", ", line 1: telemetry.x: has no layout; write layout = "),
        ("[telemetry]\nx = 3", ", line 2: telemetry.x: 3 is not a table; write [telemetry.x]"),
        (LONG, ", line 1: telemetry.x: fills no metric; write gpu_metrics = {...} or host_metrics = {...}"),
        (LONG + "host_metrics = {cpu = 'c'}", ", line 7: telemetry.x.host_metrics.cpu: no such key; did you mean"),
        (
            LONG + "gpu_metrics = {power_w = 'c'}",
            ', line 1: telemetry.x: does not name the gpu column; add gpu = "..." or uuid = "..."',
        ),
        (
            LONG + "uuid = 'u'\ngpu_metrics = {power_w = 'c'}",
            ", line 7: telemetry.x.uuid: a UUID replaces node and gpu; keep either",
        ),
        (
            LONG.replace('node = "n"', 'uuid = "n"') + "gpu_metrics = {power_w = 'c'}",
            ", line 1: telemetry.x: names UUIDs but no table of GPUs; add [gpus] with uuid, node and gpu",
        ),
        (
            LONG.replace('metric = "m"', "") + "host_metrics = {cpu_pct = 'c'}",
            ', line 1: telemetry.x: does not name the metric column; add metric = "..."',
        ),
        (
            LONG + "gpu = 'g'\nhost_metrics = {cpu_pct = 'c'}",
            ", line 8: telemetry.x.host_metrics: host metrics have no GPU; put them in a separate section",
        ),
        (
            "[telemetry.x]\nlayout = 'wide'\ngpu_metrics = {power_w = '*'}",
            ", line 1: telemetry.x.server: does not name the GPUs; write a pattern with (?<node>...) (?<gpu>...)",
        ),
        (
            "[telemetry.x]\nlayout = 'wide'\nhost_metrics = {cpu_pct = '*', memory_used_gib = '*'}",
            ", line 1: telemetry.x: a wide file contains exactly one metric; write one section per file",
        ),
        (
            "[telemetry.x]\nlayout = 'wide'\nhost_metrics = {cpu_pct = {value = 3}}",
            ", line 3: telemetry.x.host_metrics.cpu_pct: allows only column and unit",
        ),
        (JOBS + "[gpus]\nuuid = 'u'\nnode = 'n'", ", line 3: gpus: has no gpu; its keys are: uuid, node, gpu, files,"),
        (
            JOBS + "gpu_count = {columns = ['a', 'b']}",
            ", line 3: jobs.columns.gpu_count.columns: gpu_count is not a string or a time",
        ),
        (
            JOBS + "gpu_count = {expression = 'n * per(q)'}",
            ", line 3: jobs.columns.gpu_count.expression: 'n * per(q)' uses per(...), but [lookup.per] does not exist",
        ),
        (
            JOBS + "gpu_count = {expression = 'n * per(q + 1)'}\n[lookup.per]\nvalues = {a = 1}",
            ", line 3: jobs.columns.gpu_count.expression: 'n * per(q + 1)' allows a call only as TABLE(COLUMN)",
        ),
        (JOBS + "user = {columns = []}", ", line 3: jobs.columns.user.columns: is empty; write something"),
        (
            JOBS + "user = {column = 'a', separator = '-'}",
            ", line 3: jobs.columns.user.separator: has no effect on user with",
        ),
        (
            JOBS + "user = {line = true, missing = '0'}",
            ", line 3: jobs.columns.user.missing: has no effect on user with line",
        ),
        (JOBS + "user = {file = '('}", ", line 3: jobs.columns.user.file: bad regular expression '(': unclosed group"),
        (
            JOBS + f"user = {{file = '{'a' * 1001}'}}",
            ", line 3: jobs.columns.user.file: is longer than 1,000 characters; write a shorter regular expression",
        ),
        (
            JOBS + f"[jobs.status]\ncolumn = 's'\nfailed = '*{'a' * 300}'",
            ", line 3: jobs.status: '*aaaaaaaaaaaaaaaaaaa...' is a pattern of more than 300 characters; shorten it",
        ),
        (
            JOBS + "user = {column = 'a', lookup = 'x'}",
            ", line 3: jobs.columns.user.lookup: 'x' is not an allowed value",
        ),
        (
            JOBS + "user = {column = 'a', lookup = 'team'}\n[lookup.teams]\nvalues = {a = 'b'}",
            ", line 3: jobs.columns.user.lookup: 'team' is not an allowed value; did you mean 'teams'?",
        ),
        (
            JOBS + "[lookup.x]\nfiles = 'x.csv'\nkey = 'k'",
            ", line 3: lookup.x: does not give the meaning of cells; write values = {",
        ),
        (
            JOBS + "[lookup.x]\nkey = 'k'\nvalues = {a = 'b'}",
            ", line 4: lookup.x.key: has both values and the columns of a file; keep either",
        ),
        (
            LONG + "gpu = {column = 'g', lookup = 'x'}\ngpu_metrics = {power_w = 'c'}",
            ", line 7: telemetry.x.gpu.lookup: applies only to",
        ),
        (
            JOBS + "[jobs.status]\ncolumn = 's'\ncolumns = ['a']",
            ", line 3: jobs.status: needs either column or columns; keep either",
        ),
        (
            "[jobs]\ntype = 'csv'\nrecords = 'jobs'\n[jobs.columns]\njob_id = 'id'",
            (
                ", line 3: jobs.records: finds records in JSON, not in csv; remove records, "
                "or remove type from this section or [source]"
            ),
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_file_its_line_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text).startswith(message)


def test_a_mapping_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.toml: cannot read the mapping: No such file or directory"):
        load_mapping(tmp_path / "nothing.toml")


def test_the_template_is_a_mapping_that_holds(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text(template())
    found = load_mapping(path)
    assert [table.key for table in found.tables] == ["jobs", "nodes", "node_events"]
    layouts = [(section.key, section.keys.layout) for section in found.telemetry]
    assert layouts == [("telemetry.dcgm", "long"), ("telemetry.cpu", "wide")]
    assert found.gpus is not None
    assert found.tables[0].keys.missing == ("None", "NULL", "N/A")


def test_a_table_overrides_what_the_source_says(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text("[source]\ntimezone = 'UTC'\ndelimiter = ';'\n[jobs]\ntimezone = 'Asia/Tokyo'\n" + JOBS)
    reading = load_mapping(path).tables[0].keys
    assert (reading.timezone, reading.delimiter, reading.files) == ("Asia/Tokyo", ";", ("*",))
