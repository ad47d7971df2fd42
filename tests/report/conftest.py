"""A small Trace that can answer everything, with hostile names in it, and its report."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.analysis import Analysis, analyze
from tracekit.manifest import Capability, Check, FileAccount
from tracekit.report.bundle import vega_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tracekit.report.charts import Chart
    from tracekit.report.structure import Report
    from tracekit.trace import Trace

END_OF_SCRIPT = "</script><img src=x onerror=alert(1)>"
RIGHT_TO_LEFT = "\u202ereversed\u2066"
FORMULA = '=HYPERLINK("http://example.invalid","x")'
LONG = "L" * 100_000
HOSTILE = (END_OF_SCRIPT, RIGHT_TO_LEFT, FORMULA, LONG, 'it\'s "quoted" & {{ 7*7 }}', "<!--", "a\u2028b\tc\nd")


@pytest.fixture(scope="session", autouse=True)
def own_cache(once: Callable[[str, Callable[[Path], Any]], Any]) -> None:
    """Make the script bundle outside the user's cache folder. It then stays in memory."""
    folder: Path = once("script-bundle", lambda folder: _with_bundle(folder / "cache"))
    _with_bundle(folder)


def _with_bundle(cache: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        vega_bundle()
    return cache


def _tables() -> dict[str, list[dict[str, Any]]]:
    jobs: list[dict[str, Any]] = []
    attempts, placements, samples = [], [], []
    statuses = ("completed", "completed", "failed", "cancelled")
    for i in range(140):
        gpus, hour, minute = (0, 0.5, 1, 4, 8, 16)[i % 6], i % 24, i % 60
        day = f"2020-03-{1 + i // 24:02}"
        start, end = f"{day} {hour:02}:{minute:02}:{i % 50:02}", f"{day} {hour:02}:59:59"
        job = {
            "job_id": f"j{i}",
            "cluster": "Earth" if i % 2 else END_OF_SCRIPT,
            "vc": HOSTILE[i % len(HOSTILE)],
            "user": HOSTILE[(i + 3) % len(HOSTILE)],
            "status": statuses[i % 4],
            "submit_time": f"{day} {hour:02}:{minute:02}:00",
            "start_time": start,
            "end_time": end,
            "queue_s": i % 50,
            "run_s": 3599 - 60 * minute - i % 50,
            "gpu_count": gpus,
            "node_count": 1 + (i % 3 if gpus >= 8 else 0),
            "attempt_count": 1,
        }
        jobs.append(job)
        shared = {"job_id": f"j{i}", "attempt": 0, "start_time": start, "end_time": end, "gpu_count": gpus}
        attempts.append(
            {
                **shared,
                "run_s": job["run_s"],
                "wait_s": i % 50,
                "node_count": job["node_count"],
                "status": job["status"],
            }
        )
        if gpus == 1:
            placements.append({**shared, "node_id": "n1", "gpu_index": [i % 8]})
            samples += [
                {"time": f"{day} {hour:02}:{m:02}", "node_id": "n1", "gpu_index": i % 8, "utilization_pct": m}
                for m in range(minute, 60, 5)
            ]
    return {
        "jobs": jobs,
        "attempts": attempts,
        "placements": placements,
        "gpu_utilization": samples,
        "host_utilization": [
            {
                "time": f"2020-03-01 00:{m:02}",
                "node_id": "n1",
                "cpu_pct": m,
                "memory_used_gib": 8,
                "memory_total_gib": 64,
            }
            for m in range(60)
        ],
        "nodes": [{"node_id": "n1", "gpu_count": 8}, {"node_id": "n2", "gpu_count": 8}],
        "rejects": [
            {"source_file": "jobs.csv", "line": 7, "column": "time", "reason": "is no time", "raw": END_OF_SCRIPT},
            {"source_file": "jobs.csv", "line": 9, "column": None, "reason": "expected 3 fields, found 2", "raw": LONG},
        ],
    }


@pytest.fixture(scope="session")
def hostile_trace(make_trace: Callable[..., Trace], once: Callable[[str, Callable[[Path], Any]], Any]) -> Trace:
    facts = {
        "format": "helios",
        "files": [FileAccount("jobs.csv", bytes=4096, records=142, kept=140, rejected=2)],
        "timezone": "Asia/Shanghai",
        "checks": {
            "fine": Check(0, 140, "jobs that end before they start"),
            "bad": Check(3, 140, f"jobs named {END_OF_SCRIPT}", examples=[END_OF_SCRIPT, RIGHT_TO_LEFT]),
        },
        "capabilities": {"retries": Capability(available=False, note="the source records no attempts")},
        "notes": ["hours are local"],
    }
    # All processes share one Trace, because its name and path are in the report.
    made: Trace = once("hostile-trace", lambda _: make_trace(manifest_overrides=facts, **_tables()))
    return made


@pytest.fixture(scope="session")
def analysis(hostile_trace: Trace, once: Callable[[str, Callable[[Path], Any]], Any]) -> Analysis:
    found: Analysis = once("hostile", lambda folder: analyze(hostile_trace.path, folder / "hostile"))
    return found


@pytest.fixture(scope="session")
def report(analysis: Analysis) -> Report:
    loaded: Report = json.loads(analysis.data.read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="session")
def page(analysis: Analysis) -> str:
    return analysis.report.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def drawn_charts(report: Report) -> dict[str, list[Chart]]:
    """Return the charts of each answer in the report, which no test may change."""
    from tracekit.report.sections.interface import charts

    return {a["name"]: charts(a["name"], a["rows"]) for s in report["sections"] for a in s["answers"]}


_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def _missing(reason: str) -> None:
    """Skip the test for this reason, or fail if a browser is required, as in the gate."""
    if os.environ.get("TRACEKIT_REQUIRE_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a real browser in which pages are opened."""
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        _missing(f"no browser: none of {', '.join(_BROWSERS)} is on the PATH")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("no playwright: install the dev dependencies")
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=list(_FLAGS))
        yield started
        started.close()
