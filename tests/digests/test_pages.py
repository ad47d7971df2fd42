"""The folder of a digest: its files, what hostile names do to it, and what it says."""

from __future__ import annotations

import datetime as dt
import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from tests.command import run
from tracekit.errors import OutputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

HOSTILE = [
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "a|b`c`\n# head",
    '"><img src=x onerror=alert(1)>',
    "[x](javascript:alert(1))",
    "\u202egnp.exe",
    "Zoë",
    "x" * 1_000_000,
    "",
]


def jobs_of(user: str | None, number: int, first: int, **more: Any) -> list[dict[str, Any]]:
    """Return jobs an hour apart from the `first` day after 2 March 2026, a Monday, on; each runs half an hour."""
    found = []
    for i in range(number):
        submit = dt.datetime(2026, 3, 2) + dt.timedelta(days=first, hours=i % 160, minutes=i // 160)
        start, end = submit + dt.timedelta(minutes=1), submit + dt.timedelta(minutes=31)
        found.append(
            {
                "job_id": f"{user!r:.40}-{first}-{i}",
                "user": user,
                "account": "lab",
                "submit_time": submit.isoformat(),
                "start_time": start.isoformat(),
                "end_time": end.isoformat(),
                "queue_s": 60.0,
                "run_s": 1800.0,
                "gpu_count": 1,
                "status": "completed",
                **more,
            }
        )
    return found


@pytest.fixture(scope="module")
def history(make_trace: Callable[..., Trace]) -> Trace:
    """Return nine weeks; in the last one ann submits five times as many jobs, and half of bob's fail."""
    jobs: list[dict[str, Any]] = []
    for week in range(9):
        last = week == 8
        jobs += jobs_of("ann", 100 if last else 20 + week % 3, 7 * week)
        bob = jobs_of("bob", 30, 7 * week)
        for i, job in enumerate(bob):
            job["status"] = "failed" if i % (2 if last else 10) == 0 else "completed"
        jobs += bob
    jobs += [job for n, name in enumerate(HOSTILE) for job in jobs_of(name, 1, 56) if not job.update(job_id=f"h{n}")]
    jobs += jobs_of(None, 2, 57)
    jobs += jobs_of("ann", 1, 62, gpu_count=0)  # on the last Sunday
    attempts = [
        {
            "attempt": 0,
            **{k: job[k] for k in ("job_id", "start_time", "end_time", "run_s", "gpu_count", "status")},
        }
        for job in jobs
    ]
    return make_trace(jobs=jobs, attempts=attempts)


@pytest.fixture(scope="module")
def folder(history: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("digest") / "out"
    tracekit.digest(history, out)
    return out


class _Page(HTMLParser):
    """The tags and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]


def test_every_user_has_two_pages_that_the_index_links(folder: Path) -> None:
    made = json.loads((folder / "digest.json").read_text())
    assert made["week"] == "2026-W18"
    assert len(made["parts"]) == 2 + len(HOSTILE)
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    pages = {f"{part['file']}.{ending}" for part in made["parts"] for ending in ("html", "md")}
    assert files == {"index.html", "index.md", "digest.json"} | pages
    assert {"users/ann.html", "users/bob.md"} <= pages
    assert set(_Page((folder / "index.html").read_text()).links) == {p for p in pages if p.endswith(".html")}
    linked = set(re.findall(r"\]\(([^)]*)\) \|", (folder / "index.md").read_text()))
    assert linked == {p for p in pages if p.endswith(".md")}


def test_hostile_names_are_text(folder: Path) -> None:
    for path in folder.rglob("*.html"):
        page = _Page(path.read_text())
        assert not page.tags & {"script", "img", "iframe", "link", "object", "form"}, path.name
        assert not [a for a in page.attributes if a.startswith("on")]
        assert not [link for link in page.links if not re.fullmatch(r"(\.\./index|users/[\w.-]+)\.html", link)]
        assert "\u202e" not in path.read_text()
        assert path.stat().st_size < 100_000
    for path in folder.rglob("*.md"):
        text = path.read_text()
        assert not re.search(r"(?<!\\)[<`]", text), path.name
        assert not re.search(r"(?<!\\)\]\(javascript", text)
        assert text.count("\n# ") == 0


def _lines_with(text: str, words: str) -> list[str]:
    found = [line.strip().removeprefix("- ") for line in text.splitlines() if words in line]
    assert found, words
    return found


def test_changes_are_named_for_whom_they_are(folder: Path, golden: Golden) -> None:
    made = json.loads((folder / "digest.json").read_text())
    told = {
        part["name"]: {c["figure"]: c["verdict"] for c in part["changes"] if c["verdict"] in {"above", "below"}}
        for part in made["parts"]
    }
    assert told["ann"] == {"jobs": "above", "held_gpu_h": "above"}
    assert told["bob"] == {"failed_share": "above"}
    assert not any(told[name] for name in told if name not in {"ann", "bob"})
    golden(
        [
            *_lines_with((folder / "users" / "ann.md").read_text(), "the usual"),
            *_lines_with((folder / "users" / "bob.md").read_text(), "the usual"),
            *re.findall(r"\bmore: [^<]*", (folder / "index.html").read_text()),
        ]
    )


def test_jobs_of_nobody_stand_in_the_table_alone(folder: Path) -> None:
    made = json.loads((folder / "digest.json").read_text())
    assert made["nobody"]["figures"]["jobs"] == 2
    (row,) = _lines_with((folder / "index.md").read_text(), "not named")
    assert [cell.strip() for cell in row.split("|")][2] == "2"


def test_same_history_gives_the_same_bytes(history: Trace, folder: Path, tmp_path: Path) -> None:
    tracekit.digest(history, tmp_path / "again", week="2026-W18")
    for path in folder.rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(folder)).read_bytes(), path.name


def test_week_in_the_middle_has_fewer_before(history: Trace, tmp_path: Path, golden: Golden) -> None:
    made = tracekit.digest(history, tmp_path / "out", week="2026-W12")
    assert made["weeks_before"] == ["2026-W10", "2026-W11"]
    assert {c["verdict"] for c in made["everyone"]["changes"]} == {"too few"}
    golden(_lines_with((tmp_path / "out" / "index.md").read_text(), "too few jobs"))


def test_by_account(history: Trace, tmp_path: Path) -> None:
    told = run("digest", history.path, "-o", tmp_path / "out", "--by", "account")
    assert told.returncode == 0
    assert told.stdout == f"digest of 2026-W18: {tmp_path / 'out' / 'index.html'} (1 accounts)\n"
    assert (tmp_path / "out" / "accounts" / "lab.html").is_file()


def test_week_that_the_history_does_not_hold_is_refused(history: Trace, tmp_path: Path, golden: Golden) -> None:
    told = run("digest", history.path, "-o", tmp_path / "out", "--week", "2026-W19")
    assert told.returncode == 2
    golden(told.stderr.replace(str(history.path), "HISTORY"))


def test_week_that_is_not_whole_says_so(make_trace: Callable[..., Trace], tmp_path: Path, golden: Golden) -> None:
    # From Wednesday, 4 March, 00:00 to Friday, 6 March, 00:31.
    trace = make_trace(jobs=jobs_of("ann", 49, 2), attempts=[])
    told = run("digest", trace.path, "-o", tmp_path / "out")
    assert told.stdout.startswith("digest of 2026-W10: ")
    notes = _lines_with(told.stderr, "note: ")
    assert len(notes) == 2
    golden([*notes, *_lines_with((tmp_path / "out" / "index.md").read_text(), "Note: ")])


def test_output_is_replaced_only_when_asked(history: Trace, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tracekit.digest(history, out, week="2026-W17")
    with pytest.raises(OutputError, match="exists already"):
        tracekit.digest(history, out)
    assert json.loads((out / "digest.json").read_text())["week"] == "2026-W17"
    with pytest.raises(UsageError):
        tracekit.digest(history, out, week="2030-W01", force=True)
    assert json.loads((out / "digest.json").read_text())["week"] == "2026-W17"
    tracekit.digest(history, out, force=True)
    assert json.loads((out / "digest.json").read_text())["week"] == "2026-W18"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_log_that_names_no_accounts(sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the log has no account names; try --by user"):
        tracekit.digest(sample_trace("philly"), tmp_path / "out", by="account")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name",
    [
        "slurm",
        "swf",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("philly", "helios", "acme", "alibaba-pai")),
    ],
)
def test_samples_have_a_digest(name: str, sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    made = tracekit.digest(sample_trace(name), tmp_path / "out")
    held = sum(part["figures"]["held_gpu_h"] or 0 for part in [*made["parts"], *filter(None, [made["nobody"]])])
    assert held == pytest.approx(made["everyone"]["figures"]["held_gpu_h"])
    assert made["jobs_are"] == ("jobs" if name == "swf" else "GPU jobs")


def test_pages_that_leave_the_house(history: Trace, tmp_path: Path) -> None:
    salt = tmp_path / "salt"
    first = run("digest", history.path, "-o", tmp_path / "one", "--anonymize", "--salt-file", salt)
    assert first.returncode == 0
    assert "note: " in first.stderr  # where the salt was kept
    assert run("digest", history.path, "-o", tmp_path / "two", "--anonymize", "--salt-file", salt).returncode == 0
    made, again = (json.loads((tmp_path / name / "digest.json").read_text()) for name in ("one", "two"))
    assert made["parts"] == again["parts"]
    names = [part["name"] for part in made["parts"]]
    assert all(re.fullmatch(r"user-[0-9a-f]{8}", name) for name in names)
    assert all(part["file"] == f"users/{part['name']}" for part in made["parts"])
    plain = tracekit.digest(history, tmp_path / "plain")
    assert [p["figures"] for p in plain["parts"][:2]] == [p["figures"] for p in made["parts"][:2]]
    written = "".join(p.name + p.read_text() for p in (tmp_path / "one").rglob("*.*"))
    for name in ("ann", "bob", "passwd", "Zoë", str(history.path), salt.read_text().strip()):
        assert not re.search(rf"\b{re.escape(name)}\b", written), name


def test_salt_without_pseudonyms_is_refused(history: Trace, tmp_path: Path) -> None:
    told = run("digest", history.path, "-o", tmp_path / "out", "--salt-file", tmp_path / "salt")
    assert told.returncode == 2
    assert "add --anonymize" in told.stderr
    assert not (tmp_path / "out").exists()
