"""Logs that tell little, twins that cannot be used, and targets out of reach, on the command line."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import json
import random
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.command import run
from tracekit.calibration.delays import QUANTILES
from tracekit.calibration.twin import ClusterTwin, Delays, Twin, digest_of_jobs, read_twin, twin_text, write_twin
from tracekit.errors import UsageError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

START = dt.datetime(2020, 1, 1)
NODE = {"node_id": "n", "gpu_count": 8}
HOSTILE = 'e"]\n[cluster."b\\\x7f\x01\x1b[31m<script>alert(1)</script>'
TOO_FEW = "0 jobs of the first part of the log have a known start; calibration needs at least 50"
AT_ONCE = "all jobs were submitted at the same time, so the log cannot be split by time"
NO_STARTS: dict[str, Any] = {"start_time": None, "end_time": None, "queue_s": None}


def at(seconds: float) -> str:
    return (START + dt.timedelta(seconds=seconds)).isoformat(" ")


def jobs_of(
    n: int = 300,
    days: float = 20,
    *,
    busy: float = 0.9,
    alike: bool = False,
    waits: bool = True,
    **same: Any,
) -> list[dict[str, Any]]:
    """Return jobs as one node of 8 GPUs ran them, first in, first out, or each at once where nothing waits."""
    drawn = random.Random(1)
    gap = days * 86_400 / n
    free, rows = [0.0] * 8, []
    for k in range(n):
        submit = k * gap + (0 if alike else drawn.random() * gap)
        gpus = 4 if alike else drawn.choice([1, 2, 4, 8])
        run_s = round(8 * gap * busy / 3.75 * (1 if alike else 2 * drawn.random())) + 1
        free.sort()
        start = max(submit, free[gpus - 1]) if waits else submit
        free[:gpus] = [start + run_s] * gpus
        row = {
            "job_id": f"j{k}",
            "submit_time": at(submit),
            "start_time": at(start),
            "end_time": at(start + run_s),
            "queue_s": start - submit,
            "run_s": run_s,
            "gpu_count": gpus,
            "status": "completed",
            "user": f"u{k % 5}",
            "vc": f"v{k % 3}",
        }
        rows.append(row | same)
    return rows


LOGS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "no waits": (jobs_of(alike=True, busy=0.3, waits=False), True),
    "no starts": (jobs_of(**NO_STARTS), True),
    "no capacity": (jobs_of(), False),
    "ten days": (jobs_of(days=10), True),
    "three days": (jobs_of(days=3), True),
    "one job": (jobs_of(1), True),
    "all alike": (jobs_of(alike=True, busy=1.2), True),
    "all at once": ([job | {"submit_time": at(0), "queue_s": None} for job in jobs_of(alike=True)], True),
    "one user": (jobs_of(user="u", vc="v"), True),
}
CALIBRATED = ("no waits", "no capacity", "ten days", "three days", "all alike", "one user")
FEW = ("no waits",)
ANALYZED = ("no waits", "one job")
"""Logs, one of each kind, on which commands that take long are tried in the first tier."""


@pytest.fixture(scope="module")
def traces(make_trace: Callable[..., Trace]) -> dict[str, Trace]:
    return {
        name: make_trace(jobs=jobs, **({"nodes": [NODE]} if nodes else {}), manifest_overrides={"capabilities": {}})
        for name, (jobs, nodes) in LOGS.items()
    }


@pytest.fixture(scope="module")
def calibrated(traces: dict[str, Trace], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, str]]:
    """Return a function that gives the twin of a log and what the command said, made once."""
    folder = tmp_path_factory.mktemp("twins")

    @functools.cache
    def made(log: str) -> tuple[Path, str]:
        file = folder / f"{log}.toml"
        done = run("calibrate", traces[log].path, "-o", file)
        assert done.returncode == 0, done.stderr
        return file, done.stdout

    return made


@pytest.fixture(scope="module")
def good(calibrated: Callable[[str], tuple[Path, str]]) -> Path:
    """Return a twin of the log of ten days, in which every key stands."""
    file, _ = calibrated("ten days")
    assert 'grade = "close"' in file.read_text(encoding="utf-8")
    return file


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> str:
    """Return the one line of an error, which holds the parts and no control characters."""
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = [one for one in done.stderr.splitlines() if not one.startswith("note: ")]
    assert line.startswith("tracekit: error: ")
    assert line.isprintable()
    for part in parts:
        assert part in line
    return line


NO_RULES = "no job waits, so the log does not show how the scheduler orders jobs"
FIRST_IN = "behaves like first in, first out"


@pytest.mark.parametrize("log", CALIBRATED)
def test_a_log_that_can_be_calibrated_says_what_it_tells(
    traces: dict[str, Trace], calibrated: Callable[[str], tuple[Path, str]], log: str
) -> None:
    twin, said = calibrated(log)
    assert (NO_RULES if log == "no waits" else FIRST_IN) in said
    assert "grade close" in said
    assert ("behaves like" in said) == (log != "no waits")
    # Nothing is called stated where the log states nothing.
    (one,) = read_twin(twin, traces[log]).cluster.values()
    assert one.capacity == ("observed" if log == "no capacity" else "stated")
    assert (" stated " in said) == (log != "no capacity")


@pytest.mark.parametrize(
    "log", [*FEW, *(pytest.param(log, marks=pytest.mark.thorough) for log in CALIBRATED if log not in FEW)]
)
def test_every_command_answers_in_the_twin_of_a_log_that_tells_little(
    traces: dict[str, Trace], calibrated: Callable[[str], tuple[Path, str]], tmp_path: Path, log: str
) -> None:
    trace, (twin, _) = traces[log], calibrated(log)
    done = run("replay", trace.path, "--twin", twin, "-p", "sjf", "-o", tmp_path / "replays")
    assert done.returncode == 0, done.stderr
    row = pl.read_parquet(tmp_path / "replays" / "comparison.parquet").row(1, named=True)
    reason = "no job waits in the log; the effect cannot be estimated"
    assert (row["effect_told"], row["effect_reason"]) == ((False, reason) if log == "no waits" else (True, None))
    done = run("calibrate", trace.path, "--twin", twin, "--report", tmp_path / "fidelity")
    assert done.returncode == 0, done.stderr
    assert (NO_RULES if log == "no waits" else FIRST_IN) in done.stdout
    for given in (["--twin", str(twin)], ["--try", "300"]):
        done = run("guidelines", trace.path, *given)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("log", "why"), [("no starts", TOO_FEW), ("one job", TOO_FEW), ("all at once", AT_ONCE)])
def test_a_log_that_cannot_be_calibrated_says_why_and_keeps_its_other_answers(
    traces: dict[str, Trace], tmp_path: Path, log: str, why: str
) -> None:
    trace = traces[log].path
    for command in ("calibrate", "fidelity"):
        refused(run(command, trace, "-o", tmp_path / "out"), str(trace), why)
        assert not (tmp_path / "out").exists()
    refused(run("plan", trace, "-o", tmp_path / "out", "--resamples", "5"), why)
    assert not (tmp_path / "out").exists()
    done = run("guidelines", trace, "--try", "300")
    assert done.returncode == 0, done.stderr
    assert "0 of 20 guidelines hold" in done.stdout
    refused(run("guidelines", trace, "--twin", tmp_path / "none.toml"), "none.toml: cannot read the twin: No such file")


@pytest.mark.parametrize(
    "log", [log if log in ANALYZED else pytest.param(log, marks=pytest.mark.thorough) for log in LOGS]
)
def test_an_analysis_is_made_of_every_log(traces: dict[str, Trace], tmp_path: Path, log: str) -> None:
    done = run("analyze", traces[log].path, "--no-fit", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8").replace("\xa0", " ")
    says = {
        "no waits": "cannot tell, because no job waits",
        "no starts": TOO_FEW,
        "one job": TOO_FEW,
        "all at once": AT_ONCE,
    }
    assert says.get(log, "first in, first out") in page
    assert ("fits these rules best" in page) == (log not in says)


def test_a_plan_says_what_few_days_and_no_waits_leave_open(traces: dict[str, Trace], tmp_path: Path) -> None:
    words = ("--target", "p90<=1h", "--resamples", "5", "--workers", "1", "--nodes", "1,2")
    few = run("plan", traces["three days"].path, "-o", tmp_path / "few", *words)
    refused(few, "the log covers 3 whole days with submissions; a plan needs at least 5")
    for log in ("ten days", "no capacity", "no waits"):
        done = run("plan", traces[log].path, "-o", tmp_path / log, *words)
        assert done.returncode == 0, done.stderr
        document = json.loads((tmp_path / log / "plan.json").read_text(encoding="utf-8"))
        assert [row["nodes"] for row in document["capacity"]] == [1, 2]


@pytest.mark.parametrize("target", ["p90<=0s", "mean<=0.000001s"])
def test_a_target_that_no_number_of_nodes_keeps_has_no_answer(
    traces: dict[str, Trace], good: Path, tmp_path: Path, target: str
) -> None:
    """Start-up delays hold jobs back however many nodes there are."""
    twin = read_twin(good, traces["ten days"])
    slow = Delays(startup={size: tuple(60.0 + k for k in range(len(QUANTILES))) for size in ("1", "2-4", "5-8")})
    file = tmp_path / "twin.toml"
    write_twin(Twin(twin.trace, {"all": ClusterTwin(delays=slow)}, twin.name), file)
    words = ("--target", target, "--resamples", "5", "--workers", "1", "-o", tmp_path / "out")
    done = run("plan", traces["ten days"].path, "--twin", file, *words)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out" / "plan.json").read_text(encoding="utf-8"))
    answer = document["answer"]
    assert (answer["reached"], answer["nodes"], answer["nodes_low"], answer["nodes_high"]) == (False, None, None, None)
    assert answer["best_s"] >= 60
    assert answer["sentence"].startswith("no number up to ")
    assert answer["sentence"] in done.stdout


@pytest.mark.parametrize("target", ["p50<=-1s", "p90<=nanh", "p90<=1e999h", "p90<=", "p90<=1h;", "p42<=1h"])
def test_a_target_that_is_none_is_refused(traces: dict[str, Trace], good: Path, tmp_path: Path, target: str) -> None:
    done = run("plan", traces["ten days"].path, "--twin", good, "--target", target, "-o", tmp_path / "out")
    refused(done, f"--target: '{target}' is not a target; write it like 'p90<=1h'")


@pytest.mark.parametrize(
    ("group", "says"),
    [
        ("vc=NOPE", "--for: no VC 'NOPE'; choose one of: v0, v1, v2"),
        ("vc=N\x1b[31m\nO", "--for: no VC 'N\\x1b[31m\\nO'"),
        ("cluster=NOPE", "no cluster 'NOPE'"),
        ("size=3", "--for"),
    ],
)
def test_whose_wait_counts_has_to_be_in_the_log(
    traces: dict[str, Trace], good: Path, tmp_path: Path, group: str, says: str
) -> None:
    words = ("--target", "p90<=1h", "--for", group, "--resamples", "5", "-o", tmp_path / "out")
    refused(run("plan", traces["ten days"].path, "--twin", good, *words), says)
    assert not (tmp_path / "out").exists()


def replaced(old: str, new: str) -> Callable[[str], bytes]:
    def edit(text: str) -> bytes:
        assert old in text
        return text.replace(old, new, 1).encode("utf-8")

    return edit


def _score(value: str) -> Callable[[str], bytes]:
    return lambda text: "".join(
        f"recorded_mean_s = {value}\n" if line.startswith("recorded_mean_s") else line
        for line in text.splitlines(keepends=True)
    ).encode("utf-8")


def _jobs(value: str) -> Callable[[str], bytes]:
    return replaced("jobs = 300", f"jobs = {value}")


EDITS: dict[str, tuple[Callable[[str], bytes], tuple[str, ...]]] = {
    "cut off": (lambda text: text[: text.index("consolidate") + 4].encode(), ("line 16: is not TOML: Unterminated",)),
    "empty": (lambda _: b"", ("has no trace",)),
    "not UTF-8": (lambda text: text.replace('name = "', 'name = "\xe4', 1).encode("latin-1"), ("is not UTF-8 text",)),
    "unknown key": (replaced("scan = ", "scann = "), ("line 9: cluster.all.scann: no such key",)),
    "wrong type": (replaced("relax_s = 0.0", 'relax_s = "0"'), ("line 18: cluster.all.relax_s: '0' is not a number",)),
    "unknown cluster": (
        lambda text: text.replace('cluster."all"', 'cluster."Mars"').encode(),
        ("line 6: cluster.Mars: the Trace has no such cluster; choose one of: all",),
    ),
    "negative": (replaced("relax_s = 0.0", "relax_s = -1.0"), ("cluster.all.relax_s: -1.0 is out of range",)),
    "not a number": (replaced("relax_s = 0.0", "relax_s = nan"), ("cluster.all.relax_s: nan is out of range",)),
    "negative score": (_score("-5.0"), ("cluster.all.scores.recorded_mean_s: -5.0 is out of range",)),
    "score that is no number": (_score("nan"), ("cluster.all.scores.recorded_mean_s: nan is out of range",)),
    "no jobs": (_jobs("0"), ("cluster.all.jobs: 0 is out of range; it may be from 1",)),
    "too many digits": (_jobs("9" * 5000), ("is not TOML",)),
    "long line": (
        lambda text: (text + f'x = "{"a" * 1_000_000}"\n').encode(),
        ("cluster.all.scores.x: no such key",),
    ),
    "long key": (lambda text: (text + "a" * 1_000_000 + " = 1\n").encode(), ("no such key",)),
    "wrong digest": (
        replaced('trace = "sha256:', 'trace = "\\u001b[31msha256:0'),
        ("line 3: is a twin of the Trace",),
    ),
    "what does not go together": (
        replaced('backfill = "none"', 'backfill = "easy"\nlimits = { user_gpus = 1, vc_gpus = 0 }'),
        ("line",),
    ),
}


def edited(good: Path, edit: str, folder: Path) -> Path:
    """Write the twin with an edit, and return its file."""
    text = good.read_text(encoding="utf-8")
    if "limits = {" in text and edit.startswith("what"):
        text = text.replace("limits = { user_gpus = 0, vc_gpus = 0 }\n", "", 1)
    change, _ = EDITS[edit]
    file = folder / "twin.toml"
    file.write_bytes(change(text))
    return file


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_twin_is_refused_in_one_line(traces: dict[str, Trace], good: Path, tmp_path: Path, edit: str) -> None:
    file = edited(good, edit, tmp_path)
    with pytest.raises(UsageError) as error:
        read_twin(file, traces["ten days"])
    line = str(error.value)
    assert line.isprintable()
    assert len(line) < 1900
    for part in (str(file), *EDITS[edit][1]):
        assert part in line


@pytest.mark.parametrize(
    "edit",
    ["unknown key", *(pytest.param(edit, marks=pytest.mark.thorough) for edit in EDITS if edit != "unknown key")],
)
def test_an_edited_twin_is_refused_by_every_command(
    traces: dict[str, Trace], good: Path, tmp_path: Path, edit: str
) -> None:
    file = edited(good, edit, tmp_path)
    trace, out = traces["ten days"].path, tmp_path / "out"
    (tmp_path / "sweep.toml").write_text(f'traces = ["{trace}"]\npolicies = ["sjf"]\n')
    commands = [
        ("replay", trace, "--twin", file, "-p", "sjf", "-o", out),
        ("calibrate", trace, "--twin", file, "--report", out),
        ("plan", trace, "--twin", file, "-o", out),
        ("guidelines", trace, "--twin", file, "-o", out),
        ("sweep", tmp_path / "sweep.toml", "--twin", file, "-o", out),
    ]
    if edit not in {"long line", "long key"}:
        commands.append(("analyze", trace, "--twin", file, "--no-fit", "-o", out))
    for command in commands:
        line = refused(run(*command), str(file), *EDITS[edit][1])
        assert len(line) < 2000
        assert not out.exists()


def test_a_twin_of_another_trace_is_refused_by_name_and_digest(
    traces: dict[str, Trace], good: Path, tmp_path: Path
) -> None:
    other = traces["one user"]
    own, here = (digest_of_jobs(trace)[:19] for trace in (traces["ten days"], other))
    name = traces["ten days"].path.name
    for command in (
        ("replay", "-p", "sjf", "-o"), ("calibrate", "--report"), ("plan", "-o"), ("guidelines", "-o"),
        ("analyze", "--no-fit", "-o"),
    ):  # fmt: skip
        done = run(command[0], other.path, "--twin", good, *command[1:], tmp_path / "out")
        refused(done, f"line 3: is a twin of the Trace '{name}' ({own}), not of '{other.path}' ({here})")
        assert not (tmp_path / "out").exists()


def test_a_twin_that_takes_a_capacity_that_is_not_stated_is_refused(traces: dict[str, Trace], tmp_path: Path) -> None:
    trace, file = traces["no capacity"], tmp_path / "twin.toml"
    write_twin(Twin(digest_of_jobs(trace), {"all": ClusterTwin(capacity="stated")}, "x"), file)
    says = "all: the twin uses the capacity 'stated', which the Trace does not provide; write capacity = 'observed'"
    refused(run("replay", trace.path, "--twin", file, "-p", "sjf", "-o", tmp_path / "out"), says)


@pytest.fixture(scope="module")
def hostile(make_trace: Callable[..., Trace]) -> Trace:
    jobs = jobs_of(140, cluster=HOSTILE) + [
        job | {"job_id": f"x{job['job_id']}"} for job in jobs_of(140, cluster="two", busy=0.3)
    ]
    nodes = [NODE | {"cluster": HOSTILE}, {"node_id": "m", "gpu_count": 8, "cluster": "two"}]
    return make_trace(jobs=jobs, nodes=nodes, manifest_overrides={"capabilities": {}})


@pytest.fixture(scope="module")
def hostile_twin(hostile: Trace, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the twin and what the command said."""
    file = tmp_path_factory.mktemp("hostile") / "twin.toml"
    done = run("calibrate", hostile.path, "-o", file)
    assert done.returncode == 0, done.stderr
    return file, done.stdout


def printable(*outs: str) -> None:
    for text in itertools.chain.from_iterable(out.splitlines() for out in outs):
        assert text.isprintable(), text


def test_a_hostile_name_of_a_cluster_is_written_and_read_back(hostile: Trace, hostile_twin: tuple[Path, str]) -> None:
    file, said = hostile_twin
    twin = read_twin(file, hostile)
    assert set(twin.cluster) == {HOSTILE, "two"}
    assert twin_text(twin) == file.read_text(encoding="utf-8")
    assert "behaves like" in said
    assert 'e"]\\n[cluster."b' in said
    printable(said)


@pytest.mark.parametrize(
    ("command", "page"),
    [
        pytest.param(("replay", "--cluster-name", HOSTILE, "-p", "sjf", "-o"), None, id="replay"),
        pytest.param(("calibrate", "--report"), None, id="calibrate", marks=pytest.mark.thorough),
        pytest.param(
            ("plan", "--for", f"cluster={HOSTILE}", "--resamples", "5", "--workers", "1", "--nodes", "1,2", "-o"),
            None,
            id="plan",
        ),
        pytest.param(("guidelines", "-f", "html", "-o"), ".", id="guidelines"),
        pytest.param(("analyze", "--no-fit", "-o"), "report.html", id="analyze", marks=pytest.mark.thorough),
    ],
)
def test_a_hostile_name_of_a_cluster_is_escaped(
    hostile: Trace, hostile_twin: tuple[Path, str], tmp_path: Path, command: tuple[str, ...], page: str | None
) -> None:
    file, _ = hostile_twin
    name, *words = command
    done = run(name, hostile.path, "--twin", file, *words, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    printable(done.stdout, done.stderr)
    if page is not None:
        text = (tmp_path / "out" / page).read_text(encoding="utf-8")
        assert "<script>alert(1)" not in text
        assert not set(text) & {"\x01", "\x1b", "\x7f"}
