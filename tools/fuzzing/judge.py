"""Ingest a damaged source, and return the faults of the outcome."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.fuzzing.mutations import mutate
from tools.fuzzing.supervision import Verdict
from tracekit.errors import TracekitError
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from pathlib import Path

    from tools.fuzzing.seeds import Seed
    from tracekit.trace import Trace

    Row = tuple[Any, ...]

__all__ = ["Case", "Verdict", "judge", "make_case"]

MESSAGE = 4_000
"""Longest error message [characters]."""

_HEADED = re.compile(r"(?!pai_).*\.(?:csv|txt)|cluster_(?:gpu|cpu|mem)_util")
_LINES = re.compile(r".*\.(?:csv|txt|jsonl)|cluster_(?:gpu|cpu|mem)_util|cluster_machine_list")

_PRISTINE: dict[tuple[str, ...], dict[str, dict[bytes, Row]]] = {}
"""Cached results of `_pristine`, by format and files."""


class Case(NamedTuple):
    """A mutated source."""

    seed: Seed
    files: dict[str, bytes]
    how: list[str]


def make_case(name: str, seed: Seed, number: int, run: int) -> Case:
    """Return case `number` of the run with seed `run`, which is the same each time."""
    files, how = mutate(seed.files, random.Random(f"{run}:{number}:{name}"))
    return Case(seed, files, how)


def judge(case: Case, folder: Path) -> Verdict:
    """Ingest a case in the empty folder `folder`, and leave its files there."""
    out = folder / "out"
    try:
        trace = _ingest(case, folder)
    except TracekitError as error:
        faults = _faults_of_error(error, out)
        return Verdict("finding" if faults else "error", "; ".join(faults) or str(error))
    faults = [*trace.validate(), *_wrong_counts(case, trace), *_wrong_jobs(case, trace, folder)]
    shutil.rmtree(out)
    return Verdict("finding" if faults else "trace", "; ".join(faults))


def _ingest(case: Case, folder: Path) -> Trace:
    source = folder / "source"
    for name, content in case.files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    (folder / "out").mkdir()
    options = {}
    if case.seed.mapping:
        (folder / "map.toml").write_text(case.seed.mapping)
        options["map"] = str(folder / "map.toml")
    return ingest_logs(
        source,
        folder / "out" / "trace",
        format_name=case.seed.format,
        options=options,
        max_reject_share=1.0,
        memory_limit="500MB",
    )


def _faults_of_error(error: TracekitError, folder: Path) -> list[str]:
    text = str(error)
    faults = []
    if not text.isprintable():
        faults.append(f"the error is not one printable line: {text[:300]!r}")
    if len(text) > MESSAGE:
        faults.append(f"the error has {len(text)} characters: {text[:300]}")
    if "Traceback" in text or re.search(r"\b[A-Z]\w+(?:Error|Exception)\b", text):
        faults.append(f"the error shows internals: {text[:300]}")
    left = [path.name for path in folder.iterdir()]
    if left:
        faults.append(f"an error left {left} behind")
    return faults


def _wrong_counts(case: Case, trace: Trace) -> list[str]:
    faults = []
    for account in trace.manifest.files:
        content = case.files.get(account.path)
        if content is not None:
            allowed = _records(case.seed.format, account.path, content)
            if allowed and account.records not in allowed:
                faults.append(f"{account.path}: {account.records} records counted, {sorted(allowed)} expected")
            if account.sha256 != hashlib.sha256(content).hexdigest():
                faults.append(f"{account.path}: its SHA-256 differs from the file's")
        elif case.seed.members and account.sha256 not in case.seed.members:
            faults.append(f"{account.path}: its content is not in the archive")
    if case.seed.one_to_one:
        kept = sum(f.kept for f in trace.manifest.files if re.fullmatch(case.seed.one_to_one, f.path))
        jobs = trace.manifest.tables["jobs"].rows if trace.has("jobs") else 0
        if kept != jobs:
            faults.append(f"{kept} records kept, {jobs} jobs")
    return faults


def _wrong_jobs(case: Case, trace: Trace, folder: Path) -> list[str]:
    """Compare jobs from untouched lines with the undamaged source. Damage may change only its own record."""
    if not case.seed.independent or not trace.has("jobs"):
        return []
    jobs = _jobs(trace)
    faults = []
    for path in case.seed.files:
        content = case.files.get(path, b"")
        if not re.fullmatch(case.seed.one_to_one, path) or b'"' in content or path not in _read(trace):
            continue
        header, *lines = _plain_lines(content)
        if header != _plain_lines(case.seed.files[path])[0]:
            continue
        first = Counter(line.split(b",")[0].strip() for line in lines)
        for line, job in _pristine(case.seed, folder)[path].items():
            if lines.count(line) == 1 and first[line.split(b",")[0].strip()] == 1 and jobs.get(job[0]) != job:
                faults.append(f"{path}: the untouched record {line[:80]!r} gives {jobs.get(job[0])}, not {job}")
    return faults[:1]


def _plain_lines(content: bytes) -> list[bytes]:
    return [line.removesuffix(b"\r") for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n")]


def _read(trace: Trace) -> set[str]:
    return {file.path for file in trace.manifest.files}


def _jobs(trace: Trace) -> dict[str, Row]:
    return {row[0]: row for row in trace.scan("jobs").collect().rows()}


def _pristine(seed: Seed, folder: Path) -> dict[str, dict[bytes, Row]]:
    """Return the job that each line of an undamaged source gives, by file and line."""
    key = (seed.format, *seed.files)
    if key not in _PRISTINE:
        again = folder / "pristine"
        trace = _ingest(Case(seed, seed.files, []), again)
        _PRISTINE[key] = {path: _jobs_by_line(path, seed.files[path], _jobs(trace)) for path in _read(trace)}
        shutil.rmtree(again)
    return _PRISTINE[key]


def _jobs_by_line(path: str, content: bytes, jobs: dict[str, Row]) -> dict[bytes, Row]:
    found = {}
    for line in _plain_lines(content)[1:]:
        name = line.split(b",")[0].strip().decode("utf-8", "replace")
        for job_id, job in jobs.items():
            # If there are several clusters, ids include the cluster, which is also part of the file's path.
            cluster, _, own = job_id.rpartition("/")
            if own == name and cluster.lower() in path.lower():
                found[line] = job
    return found


def _records(format_name: str, path: str, content: bytes) -> set[int]:
    """Return the acceptable record counts of a file, or {} if its lines do not determine them."""
    if path == "cluster_job_log":
        return _list_length(content)
    lines = [line for line in content.split(b"\n") if line not in {b"", b"\r"}]
    if format_name == "swf":
        # A byte order mark may precede a comment, or count as the first byte of a record.
        return {_swf_records(lines), _swf_records([line.removeprefix(b"\xef\xbb\xbf") for line in lines])}
    if path.endswith(".jsonl"):
        return {sum(1 for line in lines if line.strip())}
    if b'"' in content or not _LINES.fullmatch(path):
        return set()
    # A file in a format without headers may still have a header.
    return {len(lines) - 1} if _HEADED.fullmatch(path) else {len(lines), len(lines) - 1}


def _swf_records(lines: list[bytes]) -> int:
    # Decoded, because a line with only whitespace of any kind is blank.
    texts = [line.decode("utf-8", "replace").strip() for line in lines]
    return sum(1 for text in texts if text and not text.startswith(";"))


def _list_length(content: bytes) -> set[int]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return set()
    return {len(found)} if isinstance(found, list) else set()
