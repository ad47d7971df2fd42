"""Pseudonyms: nothing that leaves the house holds a name, and the same salt gives the same pseudonyms."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import hmac
import json
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import tracekit
from tests.command import run
from tests.report.asking import asking
from tracekit import schema
from tracekit.anonymous import Pseudonyms, anonymous_trace, kind_of, opened, read_salt
from tracekit.damage import explain_damage, hidden_names
from tracekit.errors import DamagedTraceError, OutputError, UsageError
from tracekit.manifest import Check, FileAccount
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden

    MakeTrace = Callable[..., Trace]

SALT = b"a salt that is long enough"

NAMES = ("zzalice", "zzphysics", "zzjobname", "zzgroup", "zzjob", "zznode", "zzfile", "zzinstance", "zzoption", "zzqos")
"""What must not be seen in any output; each stands in the logs below."""

HEAD = "JobID|Submit|Start|End|State|AllocTRES|ReqTRES|NodeList|Account|Partition|QOS|User|JobName|MaxRSS|Reason"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dump of sacct that has names wherever it can, broken records included."""
    rows = [HEAD]
    for number in range(40):
        day = f"2026-11-{number % 20 + 1:02}"
        state = ("COMPLETED", "CANCELLED by zzalice", "FAILED", "TIMEOUT")[number % 4]
        rows.append(
            f"{number + 1}|{day}T01:00:00|{day}T02:00:00|{day}T0{3 + number % 5}:00:00|{state}|"
            f"cpu=4,gres/gpu:a100=2,mem=64G,node=1|gres/gpu:a100=2|zznode{number % 3}|zzphysics|zzpartition|zzqos|"
            f"zzalice{number % 4}|zzjobname{number}||zznode1 is down"
        )
    late = "2026-11-02T02:00:00|2026-11-02T03:00:00"
    rows.append(f"41|not zzalice's time|{late}|COMPLETED|zzoption=zzalice||zznode0|zz|zz|zz|zz|zz||")
    rows.append("42|broken by zzalice")
    folder = tmp_path_factory.mktemp("zzfile-logs")
    (folder / "zzfile.txt").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def trace(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Return the Trace of the logs."""
    return tracekit.ingest_logs(logs, tmp_path_factory.mktemp("zzfile-ingested") / "t")


def texts(folder: Path) -> dict[str, str]:
    """Return all that the files of a folder say, by path; of Parquet its rows and the names in the file itself.

    Two letters stand in compressed bytes and in digests by chance: bytes are searched for whole names, what a page
    carries in them is unpacked, and the digests of its scripts are left out.
    """
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            said = file.read_bytes().decode("latin-1")
            if file.suffix == ".parquet":
                seen = [name for name in NAMES if name in said]
                said = f"{seen}\n{json.dumps(pl.read_parquet(file).to_dicts(), default=str)}"
            if file.name == "report.html":
                said = re.sub(r'(?<="packed":")[^"]+', _unpacked, said)
                said = re.sub(r"sha256-[\w+/]{43}=", "", said)
            found[str(file.relative_to(folder))] = f"{file.name}\n{said}"
    return found


def _unpacked(packed: re.Match[str]) -> str:
    return gzip.decompress(base64.b64decode(packed[0], validate=True)).decode("ascii")


@pytest.mark.parametrize("ingested", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["logs", "trace"])
def test_nothing_of_an_analysis_holds_a_name(ingested: bool, logs: Path, trace: Trace, tmp_path: Path) -> None:
    source = trace.path if ingested else logs
    salt, out, prices = tmp_path / "salt", tmp_path / "out", tmp_path / "zzfile-prices.toml"
    prices.write_text('currency = "EUR"\n[[price]]\nper_gpu_hour = "2.50"\npartition = "zzpartition"\n')
    options = ("--anonymize", "--salt-file", salt, "--prices", prices, "--replay-jobs", "30")
    done = run("analyze", source, "-o", out, *options)
    assert done.returncode == 0, done.stderr
    found = texts(out)
    assert {"report.html", "report.json", "report.md", "guidelines.md", "bill.csv", "trace/jobs.parquet"} <= set(found)
    secret = salt.read_text().strip()
    for name, text in found.items():
        hits = [word for word in ("zz", str(tmp_path), str(logs), secret) if word in text]
        assert not hits, f"{name}: {hits}"
    # The Trace in it is whole, and the bill found the prices of the partition.
    assert Trace.open(out / "trace").validate(deep=True) == []
    bill = pl.read_csv(out / "bill.csv")
    assert bill["cost"].sum() > 0
    assert bill["account"].unique().to_list() == [
        Pseudonyms(secret.encode(), {"account": 8}).of("account", "zzphysics")
    ]


@pytest.mark.parametrize("asked", ["few", pytest.param("all", marks=pytest.mark.thorough)])
def test_nothing_of_several_analyses_holds_a_name(asked: str, logs: Path, trace: Trace, tmp_path: Path) -> None:
    """Of logs and of a Trace side by side, with their comparison."""
    out = tmp_path / "out"
    options = ("--anonymize", "--salt-file", tmp_path / "salt", "--no-fit", "--replay-jobs", "0")
    some = ("overview/status", "queuing/queue_delay", "users/queueing", "utilization/jobs_to_look_at")
    with asking(*some, guidelines=()) if asked == "few" else contextlib.nullcontext():
        assert run("analyze", logs, trace.path, "-o", out, *options).returncode == 0
    found = texts(out)
    assert len([name for name in found if name.endswith("report.html")]) == 2
    assert not [name for name, text in found.items() if "zz" in text]


@pytest.mark.parametrize(
    "command",
    [
        ("query", "users/queueing", "-f", "csv"),
        ("query", "utilization/efficiency", "--param", "by=account", "-f", "json"),
        ("efficiency", "-f", "csv"),
        ("efficiency", "--jobs", "5", "-f", "csv"),
        ("efficiency", "--by", "partition"),
    ],
    ids=" ".join,
)
def test_nothing_that_a_command_prints_holds_a_name(command: tuple[str, ...], trace: Trace, tmp_path: Path) -> None:
    name, *options = command
    salt = ("--anonymize", "--salt-file", tmp_path / "salt")
    plain, hidden = (run(name, trace.path, *options, *more) for more in ((), salt))
    assert plain.returncode == hidden.returncode == 0, hidden.stderr
    assert "zz" in plain.stdout
    assert "zz" not in hidden.stdout + hidden.stderr
    assert hidden.stdout.count("\n") == plain.stdout.count("\n")


def test_the_same_salt_gives_the_same_output(trace: Trace, tmp_path: Path) -> None:
    salt = ("--anonymize", "--salt-file", tmp_path / "salt")
    first, again = (run("query", trace.path, "users/queueing", "-f", "csv", *salt) for _ in range(2))
    assert "user-" in first.stdout
    assert first.stdout == again.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("query", "overview/status", "--where", "user=alice1"),
        ("query", "overview/status", "--where", "user=nobody-at-all"),
        ("query", "overview/status", "--where", "account=physics"),
        ("query", "overview/status", "--cluster", "one"),
        ("analyze", "-o", "out", "--cluster", "one"),
    ],
    ids=" ".join,
)
def test_an_error_shows_no_name_that_the_user_did_not_give(
    command: tuple[str, ...], make_trace: MakeTrace, tmp_path: Path, golden: Golden
) -> None:
    trace = make_trace(
        jobs=[{"job_id": f"zz{n}", "user": f"zzalice{n}", "account": "zzphysics", "cluster": "zzone"} for n in range(3)]
    )
    verb, *options = command
    plain, hidden = (run(verb, trace.path, *options, *more, cwd=tmp_path) for more in ((), ("--anonymize",)))
    assert plain.returncode == hidden.returncode == 2
    assert "zz" in plain.stderr
    shown = hidden.stderr.splitlines()[-1]
    assert "zz" not in hidden.stderr.replace(str(trace.path), "")
    golden(shown.replace(str(trace.path), "TRACE"))


def read_and_fail(trace: Trace) -> None:
    """Read a Trace, and fail as damaged values make a library fail."""
    Trace.of(trace.path)
    raise OverflowError


def test_an_error_about_a_damaged_trace_names_no_job(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[{"job_id": "zzjob", "user": "zzalice"}])
    path, stated = trace.files("jobs")[0], trace.path / "manifest.json"
    pl.read_parquet(path).with_columns(run_s=pl.lit(-1.0)).write_parquet(path)
    facts = json.loads(stated.read_bytes())
    del facts["tables"]["jobs"]["sha256"]  # of which the first problem would be
    stated.write_text(json.dumps(facts))
    with pytest.raises(DamagedTraceError, match="zzjob"), hidden_names(hide=False), explain_damage():
        read_and_fail(trace)
    with pytest.raises(DamagedTraceError, match=r": \(hidden\)") as caught, hidden_names():
        read_and_fail(trace)
    assert "zz" not in caught.value.what


def test_a_users_own_sql_sees_pseudonyms_alone(trace: Trace, tmp_path: Path) -> None:
    sql, tables = tmp_path / "all.sql", ("jobs", "attempts", "placements", "nodes", "rejects")
    rows = (f"SELECT '{table}' AS name, CAST({table} AS VARCHAR) AS cells FROM {table}" for table in tables)
    sql.write_text(" UNION ALL ".join(rows))
    plain, hidden = (run("query", trace.path, sql, "-f", "json", *more) for more in ((), ("--anonymize",)))
    assert hidden.returncode == 0
    assert {row["name"] for row in json.loads(plain.stdout) if "zz" in row["cells"]} == set(tables) - {"attempts"}
    assert {row["name"] for row in json.loads(hidden.stdout)} == set(tables)
    assert "zz" not in hidden.stdout


def test_numbers_stay_as_they_are(sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    trace = sample_trace("philly")
    hidden = anonymous_trace(trace, tmp_path / "t", SALT).trace
    assert hidden.validate(deep=True) == []
    for name in ("overview/summary", "utilization/gpu_by_size_status", "queuing/delay_causes"):
        assert tracekit.run_query(hidden, name).equals(tracekit.run_query(trace, name))
    plain, named = (tracekit.efficiency(t, "user").frame.drop("user") for t in (trace, hidden))
    assert sorted(plain.rows(), key=str) == sorted(named.rows(), key=str)


def test_every_column_of_text_is_replaced_unless_it_is_known_to_hold_no_name() -> None:
    kept = {
        (table, column.name)
        for table in schema.COMMON_TABLES
        for column in schema.common(table).columns
        if column.kind == "string" and kind_of(column) is None
    }
    words = {"workload", "status", "started_by", "gpu_model", "gpu_instance", "state", "cause", "category", "signature"}
    # The rest is cut to a word, a time or a sentence without quotes, or left out.
    cut = {"source_status", "wait_reason", "value", "reason", "raw", "source", "source_cause", "column"}
    assert {name for _, name in kept} <= words | cut


def test_a_manifest_says_nothing_of_its_source(make_trace: MakeTrace, tmp_path: Path) -> None:
    trace = make_trace(
        jobs=[
            {"job_id": "zzjob", "group": "zzgroup", "wait_reason": "NodeDown zznode", "source_status": "1 by zzalice"}
        ],
        job_usage=[{"job_id": "zzjob", "instance": "zzinstance", "task": "zztask"}],
        node_events=[{"node_id": "zznode", "state": "down", "source_cause": "zzalice pulled the plug", "source": "zz"}],
        manifest_overrides={
            "files": [FileAccount("zzfile", 1, "0" * 64, 1, 1, 0)],
            "checks": {"odd": Check(1, 1, "rows of 'zzalice's' kind", ["zzjob"])},
            "options": {"map": "zzoption", "vc": "account"},
            "notes": ["zzfile was read"],
        },
    )
    hidden = anonymous_trace(trace, tmp_path / "t", SALT)
    assert not [name for name, text in texts(tmp_path / "t").items() if "zz" in text]
    assert hidden.trace.manifest.options == {"map": "(hidden)", "vc": "account"}
    assert hidden.trace.manifest.checks["odd"].meaning == "rows of (hidden) kind"
    row: dict[str, Any] = hidden.trace.scan("jobs").collect().to_dicts()[0]
    assert (row["wait_reason"], row["source_status"], row["user"]) == ("NodeDown", None, None)


def test_a_pseudonym_is_the_hmac_of_kind_and_name() -> None:
    key = hashlib.sha256(SALT).digest()
    expected = hmac.new(key, "user:Zoë".encode(), hashlib.sha256).hexdigest()
    assert Pseudonyms(SALT, {"user": 8}).of("user", "Zoë") == f"user-{expected[:8]}"
    assert SALT.decode() not in repr(Pseudonyms(SALT))


def test_sql_and_python_agree_whatever_the_name(make_trace: MakeTrace, tmp_path: Path) -> None:
    users = ["Zoë", "o'brien", 'a"b', "<script>", "x" * 5000, " ", "日本"]
    trace = make_trace(jobs=[{"job_id": str(i), "user": user} for i, user in enumerate(users)])
    hidden = anonymous_trace(trace, tmp_path / "t", SALT)
    assert hidden.pseudonyms is not None
    found = hidden.trace.scan("jobs").collect()["user"].to_list()
    assert sorted(found) == sorted(hidden.pseudonyms.of("user", user) for user in users)
    assert len(set(found)) == len(users)


def test_names_that_would_share_a_pseudonym_get_longer_ones(
    make_trace: MakeTrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.anonymous._DIGITS", 1)
    trace = make_trace(jobs=[{"job_id": str(i), "user": f"u{i}"} for i in range(40)])
    found = anonymous_trace(trace, tmp_path / "t", SALT).trace.scan("jobs").collect()["user"]
    # Forty names do not have forty different first digits of sixteen.
    assert found.n_unique() == 40
    assert set(found.str.len_chars()) == {len("user-") + 16}


def test_a_salt_is_drawn_and_kept_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "salt"
    drawn, note = read_salt(file)
    assert note is not None
    assert "a random salt was written to" in note
    assert len(drawn) == 64
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_salt(file) == (drawn, None)


def test_the_environment_can_hold_the_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_SALT", SALT.decode())
    assert read_salt(None) == (SALT, None)
    monkeypatch.setenv("TRACEKIT_SALT", "short")
    with pytest.raises(UsageError, match="TRACEKIT_SALT: the salt has fewer than 16 characters"):
        read_salt(None)
    monkeypatch.delenv("TRACEKIT_SALT")
    (one, note), (other, _) = read_salt(None), read_salt(None)
    assert one != other
    assert note is not None
    assert "for this run only" in note


def test_a_salt_that_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("short")
    with pytest.raises(UsageError, match="fewer than 16 characters"):
        read_salt(tmp_path / "short")
    with pytest.raises(UsageError, match="cannot read the salt: Is a directory"):
        read_salt(tmp_path)
    with pytest.raises(OutputError, match="salt: cannot write: No such file or directory"):
        read_salt(tmp_path / "absent" / "salt")


def test_a_run_that_is_stopped_while_it_writes_a_salt_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: Path, content: bytes) -> None:
        with self.open("wb") as file:
            file.write(content[:10])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", stop)
        with pytest.raises(KeyboardInterrupt):
            read_salt(tmp_path / "salt")
    assert list(tmp_path.iterdir()) == []
    assert len(read_salt(tmp_path / "salt")[0]) == 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--salt-file", "salt"), "works only with --anonymize"),
        (("--anonymize", "--salt-file", "out/salt"), "is in the output folder"),
        (("--anonymize", "--capacity", "nodes.csv"), "the file contains node names"),
        (("--anonymize", "--twin", "twin.toml"), "the twin contains cluster names"),
        (("--prices", "absent.toml"), "cannot read the prices"),
    ],
)
def test_what_does_not_go_with_pseudonyms_is_refused_before_any_work(
    options: tuple[str, ...], message: str, logs: Path, tmp_path: Path
) -> None:
    (tmp_path / "twin.toml").touch()
    done = run("analyze", logs, "-o", "out", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_copy_is_gone_afterwards(sample_trace: Callable[[str], Trace]) -> None:
    with opened(sample_trace("slurm")) as hidden:
        place = hidden.trace.path
        assert place.is_dir()
    assert not place.exists()
    with opened(sample_trace("slurm"), anonymize=False) as plain:
        assert plain.trace is sample_trace("slurm")
    with pytest.raises(UsageError, match="add --anonymize"), opened(place, anonymize=False, salt_file=place):
        pass
