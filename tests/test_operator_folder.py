"""A folder with all that an operator has, analyzed; its figures are recomputed from the raw files in plain Python."""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import gzip
import json
import re
import shutil
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.command import run
from tests.report.asking import asking

DUMPS = Path(__file__).parent.parent / "sample_traces" / "slurm-dumps"
PRICES = """\
currency = "EUR"

[[price]]
per_gpu_hour = "1.20"

[[price]]
per_gpu_hour = "3.00"
gpu_model = "h100"
"""
PRICE = {"a100": Fraction("1.20"), "h100": Fraction("3.00")}
BAD = {"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"}


@dataclass
class Hold:
    """A run of a job: the GPUs that it held, and the samples of those that are certainly its own."""

    job: str
    since: float
    until: float
    state: str
    names: dict[str, str]
    gpus: int = 0
    model: str = ""
    certain: set[tuple[str, int]] = field(default_factory=set)
    samples: dict[tuple[str, int], list[Fraction]] = field(default_factory=lambda: defaultdict(list))

    @property
    def held(self) -> Fraction:
        return self.gpus * Fraction(self.until - self.since)


@dataclass
class Site:
    """What the raw files say."""

    holds: list[Hold]
    waits: list[tuple[dict[str, str], float, float]]
    """Names, first submission and first start of each job with GPUs that started."""
    intervals: dict[tuple[str, int], Fraction]

    def use(self, hold: Hold) -> tuple[Fraction, Fraction] | None:
        """Return GPU-seconds used and idle, where samples tell."""
        means = [(len(v) * self.intervals[gpu], sum(v, Fraction()) / len(v)) for gpu, v in hold.samples.items()]
        if not means:
            return None
        sampled = sum((s for s, _ in means), Fraction())
        covered = min(Fraction(hold.held), sampled)
        used = covered * sum((s * mean for s, mean in means), Fraction()) / sampled
        return used, covered - used


def _at(text: str) -> float:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _nodes(text: str) -> list[str]:
    found = re.fullmatch(r"(\w+)\[([\d,-]+)\]", text)
    return [text] if found is None else [f"{found[1]}{n}" for n in _numbers(found[2])]


def read_site(folder: Path) -> Site:  # noqa: C901, PLR0912 -- one file after the other, as a reader would by hand
    """Read sacct's text, the lines of scontrol, and the series of SM activity."""
    holds: dict[tuple[str, float], Hold] = {}
    first_submit: dict[str, float] = {}
    asked: set[str] = set()
    head, *lines = (folder / "sacct.txt").read_text().splitlines()
    raw_ids = {}
    # All columns before JobName, which may hold a delimiter.
    columns = head.split("|")[: head.split("|").index("JobName")]
    rows = [dict(zip(columns, line.split("|"), strict=False)) for line in lines]
    resized = {row["JobID"]: row["End"] for row in rows if row["State"] == "RESIZING"}
    for row in rows:
        if "." in row["JobID"]:  # a step
            continue
        whole, _, part = row["JobID"].partition("+")
        job = whole if part else row["JobIDRaw"]  # the parts of a heterogeneous job are one
        raw_ids[row["JobIDRaw"]] = job
        first_submit[job] = min(_at(row["Submit"]), first_submit.get(job, float("inf")))
        if "gres/gpu=" in row["ReqTRES"]:
            asked.add(job)
        if not row["AllocTRES"]:  # never started
            continue
        goes_on = row["JobID"] in resized and row["State"] != "RESIZING"
        since = _at(resized[row["JobID"]] if goes_on else row["Start"])
        names = {key.lower(): row[key] for key in ("Account", "Partition", "User")}
        hold = holds.setdefault((job, since), Hold(job, since, _at(row["End"]), row["State"].split()[0], names))
        for model, gpus in re.findall(r"gres/gpu:(\w+)=(\d+)", row["AllocTRES"]):
            hold.gpus += int(gpus)
            hold.model = model
    for line in (folder / "scontrol-show-job-d.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        said = dict(re.findall(r"(\w+)=(\S+)", line))
        hold = holds[raw_ids[said["JobId"]], _at(said["ResizeTime"] if "ResizeTime" in said else said["StartTime"])]
        for nodes, indexes in re.findall(r"Nodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=\S+\(IDX:([\d,-]+)\)", line):
            hold.certain |= {(node, index) for node in _nodes(nodes) for index in _numbers(indexes)}
    times: dict[tuple[str, int], list[int]] = defaultdict(list)
    series = json.loads(gzip.decompress((folder / "DCGM_FI_PROF_SM_ACTIVE.json.gz").read_bytes()))["data"]["result"]
    for one in series:
        gpu = (one["metric"]["Hostname"], int(one["metric"]["gpu"]))
        label = one["metric"].get("hpc_job")
        for time, value in one["values"]:
            times[gpu].append(time)
            for hold in holds.values():
                own = hold.job == raw_ids[label] if label else gpu in hold.certain
                if own and hold.since <= time < hold.until:
                    hold.samples[gpu].append(Fraction(value))
    started: dict[str, Hold] = {}
    for hold in holds.values():
        if hold.job in asked:
            started[hold.job] = min(hold, started.get(hold.job, hold), key=lambda h: h.since)
    return Site(
        [hold for hold in holds.values() if hold.gpus],
        [(h.names, first_submit[job], h.since) for job, h in started.items()],
        {gpu: Fraction(max(t) - min(t), len(t) - 1) for gpu, t in times.items()},
    )


def to_the_cent(amounts: list[Fraction]) -> list[Fraction]:
    """Round amounts so that they add up to their rounded sum, by the largest remainders."""
    cents = [a * 100 for a in amounts]
    down = [c.numerator // c.denominator for c in cents]
    total = (sum(cents) + Fraction(1, 2)).__floor__()
    for i in sorted(range(len(cents)), key=lambda i: down[i] - cents[i])[: total - sum(down)]:
        down[i] += 1
    return [Fraction(c, 100) for c in down]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operator") / "house"
    folder.mkdir()
    for part in ("site", "telemetry"):
        for file in (DUMPS / part).iterdir():
            shutil.copy(file, folder)
    (folder / "prices.toml").write_text(PRICES)
    return folder


@pytest.fixture(scope="module")
def site(house: Path) -> Site:
    return read_site(house)


_QUICK = ("--no-fit", "--replay-jobs", "0")
_FEW = ("overview/summary", "overview/through_time", "utilization/efficiency")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("account", _QUICK), id="account, few questions"),
        pytest.param(("account", ()), id="account", marks=pytest.mark.thorough),
        pytest.param(("partition", ("--by", "partition")), id="partition", marks=pytest.mark.thorough),
    ],
)
def told_of(request: pytest.FixtureRequest, house: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return the dimension, and the folder that one command made of the house."""
    out = tmp_path_factory.mktemp("analyzed") / "out"
    by, more = request.param
    with asking(*_FEW, guidelines=()) if more == _QUICK else contextlib.nullcontext():
        told = run("analyze", house, "-o", out, *more)
    assert told.returncode == 0, told.stderr
    assert "ignored files (format slurm): prices.toml" not in told.stderr
    return by, out


def table(out: Path, name: str) -> list[dict[str, str]]:
    with (out / name).open(newline="") as file:
        return list(csv.DictReader(file))


def number(text: str) -> float:
    return float(text) if text else 0.0


def test_raw_files_hold_what_the_recomputation_needs(site: Site) -> None:
    """Hours and cents by hand of one job: 42 held one A100 for 78 s, all of them sampled at 9.6 %."""
    (timeout,) = [h for h in site.holds if h.job == "42"]
    assert timeout.held == 78
    assert len(timeout.samples["node1", 0]) == 16
    assert site.use(timeout) == (78 * Fraction("0.096"), 78 * Fraction("0.904"))
    assert len(site.waits) == 25
    # Gangs whose GPUs scontrol alone tells, on machines without labels.
    assert {("node3", 0), ("node2", 3)} <= {gpu for h in site.holds if h.job == "27" for gpu in h.samples}


def test_efficiency_is_that_of_the_raw_files(site: Site, told_of: tuple[str, Path]) -> None:
    by, out = told_of
    expected: dict[str, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for hold in site.holds:
        row = expected[hold.names[by]]
        row["held"] += hold.held
        row["timeout"] += hold.held if hold.state == "TIMEOUT" else 0
        row["failed"] += hold.held if hold.state in BAD else 0
        row["preempted"] += hold.held if hold.state == "PREEMPTED" else 0
        used, idle = site.use(hold) or (Fraction(), Fraction())
        row["used"] += used
        row["idle"] += idle
    told = run("efficiency", out / "trace", "--by", by, "-f", "csv")
    found = {row[by]: row for row in csv.DictReader(told.stdout.splitlines())}
    assert {key for key, row in found.items() if number(row["held_gpu_h"])} == set(expected)
    for key, row in expected.items():
        for name in ("held", "used", "idle", "failed", "timeout", "preempted"):
            assert number(found[key][f"{name}_gpu_h"]) * 3600 == pytest.approx(float(row[name])), (key, name)
    assert sum(row["used"] for row in expected.values()) > 30
    # The report's table is by user: it has the same sums.
    whole = table(out, "tables/utilization/efficiency.csv")
    for name in ("held", "used", "idle", "failed", "timeout", "preempted"):
        total = float(sum(row[name] for row in expected.values()))
        assert sum(number(row[f"{name}_gpu_h"]) for row in whole) * 3600 == pytest.approx(total), name


def test_waits_are_those_of_the_raw_files(site: Site, told_of: tuple[str, Path]) -> None:
    by, out = told_of
    waits = [start - submit for _, submit, start in site.waits]
    summary = {row["metric"]: number(row["value"]) for row in table(out, "tables/overview/summary.csv")}
    assert summary["gpu_mean_queue_s"] == pytest.approx(statistics.mean(waits))
    assert summary["gpu_median_queue_s"] == statistics.median(waits)
    assert summary["gpu_hours"] * 3600 == pytest.approx(float(sum(h.held for h in site.holds)))
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    told = {one["label"]: one["value"] for one in report["headline"]}
    assert told["mean wait of GPU jobs"] == pytest.approx(statistics.mean(waits))
    assert told["total waiting time"] == pytest.approx(sum(waits) / 3600)
    assert report["tenant"]["queries"]["one"] == by


def test_bill_is_that_of_the_raw_files_to_the_cent(site: Site, told_of: tuple[str, Path]) -> None:
    by, out = told_of
    lines: dict[tuple[str, str], dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for hold in site.holds:
        line = lines[hold.names[by], hold.model]
        line["cost"] += hold.held * PRICE[hold.model] / 3600
        line["hours"] += hold.held / 3600
        line["failed"] += hold.held * PRICE[hold.model] / 3600 if hold.state in BAD else 0
        line["idle"] += (site.use(hold) or (0, Fraction(0)))[1] * PRICE[hold.model] / 3600
    bill = {(row[by], row["gpu_model"]): row for row in table(out, "bill.csv")}
    assert set(bill) == set(lines)
    keys = sorted(lines)
    for column, name in (("cost", "cost"), ("failed_cost", "failed"), ("idle_cost", "idle")):
        exact = [lines[key][name] for key in keys]
        assert [Fraction(bill[key][column] or 0) for key in keys] == to_the_cent(exact), column
    for key in keys:
        assert float(bill[key]["gpu_hours"]) == pytest.approx(float(lines[key]["hours"]), abs=1e-6)
        assert (bill[key]["month"], bill[key]["currency"]) == ("2026-11", "EUR")
    assert sum(Fraction(row["cost"]) for row in bill.values()) == Fraction("0.18")
    report = json.loads((out / "report.json").read_text())
    assert "0.18 EUR" in json.dumps(report["sections"])
