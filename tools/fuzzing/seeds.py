"""Small sources for fuzz cases, made from parts of the sample traces and from mapped logs."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["Seed", "seeds"]

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


class Seed(NamedTuple):
    """A small source for fuzz cases."""

    format: str
    files: dict[str, bytes]
    mapping: str = ""
    """Content of the mapping file (for the csv format)."""
    one_to_one: str = ""
    """Regular expression for the files whose kept records are jobs, or '' if a job is not a single record."""
    members: tuple[str, ...] = ()
    """SHA-256 of the archives' contents."""

    @property
    def independent(self) -> bool:
        """Whether each line is a job of its own, identified by its first field and independent of other lines."""
        names = ("helios", "acme", "alibaba-openb", "alibaba-dlrm", "alibaba-spot", "csv")
        return self.format in names and bool(self.one_to_one) and self.is_text and "jobs.jsonl" not in self.files

    @property
    def is_text(self) -> bool:
        """Whether its files are text."""
        return not any(b"\0" in content for content in self.files.values())


_MAPPING = """
[source]
timezone = "America/Los_Angeles"
time_format = "%Y-%m-%d %H:%M:%S"
[jobs]
files = "jobs.*"
[jobs.columns]
job_id = "id"
user = "user"
submit_time = "submitted"
start_time = "started"
end_time = "ended"
gpu_count = "gpus"
memory_gib = { column = "memory", unit = "quantity" }
time_limit_s = { column = "limit", unit = "clock" }
[jobs.status]
column = "state"
completed = ["OK"]
failed = ["ERR"]
[jobs.nodes]
column = "hosts"
separator = ";"
pattern = '(?<node>[^:]+)(?::(?<gpu_index>[\\d,-]+))?'
"""
_TELEMETRY = """
[telemetry.gpu]
files = "wide.csv"
layout = "wide"
time = "time"
server = '(?<node>\\w+)-(?<gpu>\\d+)'
gpu_metrics = { utilization_pct = "*" }
[telemetry.dcgm]
files = "long.csv"
layout = "long"
time = "time"
node = "node"
gpu = "gpu"
metric = "metric"
value = "value"
gpu_metrics = { memory_used_gib = { column = "FB_USED", unit = "MiB" }, power_w = "POWER" }
[telemetry.host]
files = "row.csv"
layout = "row"
time = "time"
node = "node"
host_metrics = { cpu_pct = "cpu" }
"""
_LOOKUP = """
[lookup.teams]
files = "teams.txt"
comment = "#"
key = "user"
value = "team"
"""
_TEAMS = b'# who is where\n"user","team"\n' + b"".join(b"u%d,t%d\n" % (n, n % 3) for n in range(9))
_JOB_COLUMNS = ("id", "user", "submitted", "started", "ended", "gpus", "memory", "limit", "state", "hosts")


@cache
def seeds() -> dict[str, Seed]:
    """Return the sources for fuzz cases by name."""
    found = {
        "philly": Seed("philly", _philly(), one_to_one="cluster_job_log"),
        "helios": Seed("helios", _heads("helios", 40), one_to_one=r".*cluster_log\.csv"),
        "alibaba-pai": Seed("alibaba-pai", _pai()),
        "alibaba-openb": Seed("alibaba-openb", _heads("alibaba-openb", 40), one_to_one=".*pod_list.*"),
        "alibaba-dlrm": Seed("alibaba-dlrm", _heads("alibaba-dlrm", 40), one_to_one=".*"),
        "alibaba-spot": Seed("alibaba-spot", _heads("alibaba-spot", 40), one_to_one="job_info.*"),
        "acme": Seed("acme", _heads("acme", 40), one_to_one="trace_.*"),
        "slurm": Seed("slurm", _heads("slurm", 60)),
        "slurm-site": Seed("slurm", _slurm_site()),
        "slurm-samples": Seed("slurm", _slurm_samples()),
        "swf": Seed("swf", _heads("swf", 60)),
        "pbs": Seed("pbs", _heads("pbs", 40)),
        # A record in a printed history is a block of lines, which the record check cannot count.
        "lsf": Seed("lsf", {name: text for name, text in _heads("lsf", 60).items() if name != "history.txt"}),
        "kubernetes": Seed("kubernetes", _kubernetes()),
        "flux": Seed("flux", {"flux.json": _flux()}),
        "infinitehbd": Seed("infinitehbd", _faults()),
    }
    rows = [_mapped_job(number) for number in range(30)]
    text = "\n".join(",".join(row.values()) for row in [dict(zip(_JOB_COLUMNS, _JOB_COLUMNS, strict=True)), *rows])
    found["csv"] = Seed("csv", {"jobs.csv": text.encode() + b"\n", **_telemetry()}, _MAPPING + _TELEMETRY, "jobs.*")
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    found["csv-jsonl"] = Seed("csv", {"jobs.jsonl": lines.encode()}, _MAPPING, "jobs.*")
    document = json.dumps({"data": {"jobs": rows}}, indent=1).encode()
    found["csv-json"] = Seed("csv", {"jobs.json": document, "teams.txt": _TEAMS}, _in_document(_MAPPING) + _LOOKUP)
    found["csv-parquet"] = Seed("csv", {"jobs.parquet": _parquet(rows)}, _MAPPING, "jobs.*")
    helios = found["helios"].files
    digests = tuple(hashlib.sha256(content).hexdigest() for content in helios.values())
    packed = _tar(helios, "w:gz")
    archives = {
        "tar-gz": {"helios.tar.gz": packed},
        "tar": {"helios.tar": _tar(helios, "w")},
        "tar-xz": {"helios.tar.xz": _tar(helios, "w:xz")},
        "zip": {"helios.zip": _zip(helios)},
        "parts": {f"helios.tar.gz.parta{chr(97 + i)}": packed[i * 1000 : (i + 1) * 1000] for i in range(9)},
    }
    for name, files in archives.items():
        # A plain tar archive has no checksums of its content.
        found[name] = Seed("helios", files, members=() if name == "tar" else digests)
    return found


def _heads(name: str, lines: int) -> dict[str, bytes]:
    """Return the first lines of each file of a sample trace."""
    folder = SAMPLES / name
    return {
        path.relative_to(folder).as_posix(): b"".join(path.read_bytes().splitlines(keepends=True)[:lines])
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _slurm_site() -> dict[str, bytes]:
    """Return a dump with multi-line commands, together with machines, job samples and GPU telemetry.

    No name ends in .txt, because the record check would then count lines as records.
    """
    folder = SAMPLES / "slurm-dumps"
    files = {path.stem + path.suffix.replace(".txt", ".log"): path for path in (folder / "site").iterdir()}
    found = {name: b"".join(path.read_bytes().splitlines(keepends=True)[:80]) for name, path in sorted(files.items())}
    found["sinfo.json"] = files["sinfo.json"].read_bytes()
    header, *lines = found["sacct.log"].splitlines()
    commands = (b"sbatch --gpus=2 job.sh", b"sbatch --wrap=#!/bin/sh\ncd /work | true\npython train.py", b"")
    rows = [line.rsplit(b"|", 2) for line in (header, *lines)]
    added = [b"SubmitLine", *(commands[number % 3] for number in range(len(lines)))]
    found["sacct.log"] = b"".join(
        b"|".join([a, text, b, c]) + b"\n" for (a, b, c), text in zip(rows, added, strict=True)
    )
    telemetry = sorted((folder / "telemetry").glob("*.json.gz"))
    return found | {path.stem: gzip.decompress(path.read_bytes()) for path in telemetry}


def _slurm_samples() -> dict[str, bytes]:
    """Return a dump and the output of node tools: nvidia-smi (also dmon and -q -x), dcgmi and an exporter."""
    log, query, dmon, dcgmi, scrapes = (
        ["JobID|Submit|Start|End|State|AllocTRES|NNodes|NodeList"],
        ["timestamp, index, uuid, utilization.gpu [%], memory.used [MiB], power.draw [W]"],
        ["#Date Time gpu pwr sm mem fb", "#YYYYMMDD HH:MM:SS Idx W % % MB"],
        ["2026-03-02 10:00:00 #Entity GPUTL POWER SMACT", "2026-03-02 10:00:00 ID W"],
        ["# TYPE DCGM_FI_DEV_GPU_UTIL gauge"],
    )
    for k in range(20):
        start, end = f"2026-03-02T10:{k:02}:00", f"2026-03-02T11:{k:02}:30"
        log.append(f"{k}|{start}|{start}|{end}|COMPLETED|cpu=1,gres/gpu={1 + k % 2},node=1|1|n{k % 5}")
        query.append(f"2026/03/02 10:{k:02}:00.123, {k % 2}, GPU-{k % 2}, {k} %, {k * 100} MiB, {100 + k}.50 W")
        dmon.append(f"20260302 10:{k:02}:00 {k % 2} 250 {k} 10 {1024 * k}")
        dcgmi.append(f"2026-03-02 10:{k:02}:00 GPU {k % 2} {k} {90 + k}.500 0.{k:02}")
        scrapes.append(f'DCGM_FI_DEV_GPU_UTIL{{gpu="{k % 2}",Hostname="n3"}} {k} {1772445600 + 60 * k}000')
    gpus = [
        f'<gpu id="00000000:0{k}:00.0">\n<uuid>GPU-{k}</uuid>\n<fb_memory_usage>\n<used>{k} MiB</used>\n'
        f"</fb_memory_usage>\n<utilization>\n<gpu_util>{k} %</gpu_util>\n</utilization>\n</gpu>"
        for k in range(4)
    ]
    head = ["<?xml version='1.0' ?>", "<nvidia_smi_log>", "<timestamp>Mon Mar  2 10:05:00 2026</timestamp>"]
    xml = [*head, *gpus, "</nvidia_smi_log>"]
    files = {
        "sacct.log": log,
        "n0.csv": query,
        "n1.log": dmon,
        "n2.log": dcgmi,
        "n4.xml": xml,
        "exporter.prom": scrapes,
    }
    return {name: "\n".join([*lines, ""]).encode() for name, lines in files.items()}


def _kubernetes() -> dict[str, bytes]:
    """Return the snapshots, each with a few objects."""
    files = {}
    for path in sorted((SAMPLES / "kubernetes").glob("*.json")):
        whole = json.loads(path.read_bytes())
        whole["items"] = whole["items"][:6] + whole["items"][-6:]
        files[path.name] = json.dumps(whole, indent=1).encode()
    return files


def _faults() -> dict[str, bytes]:
    """Return the faults of a few servers with matching statistics."""
    kinds = [("Hardware Failure", "GPU", "GPU Lost"), ("Other Failure", "Unknown Error", "Unknown Error")]
    records = [
        {
            "node_id": f"server-{number % 5}",
            "event_time": number + 0.25 * ends,
            "event_type": "fault_end" if ends else "fault_start",
            "fault_type": dict(zip(("Level", "Class", "Desc"), kinds[number % 2], strict=True)),
        }
        for number in range(20)
        for ends in (False, True)
    ]
    stated = {level: {"LevelTotal": 10, part: {"ClassTotal": 10, text: 10}} for level, part, text in kinds}
    tables = {"fault_trace.json": records, "fault_statistics.json": stated}
    return {name: json.dumps(table, indent=1).encode() for name, table in tables.items()}


def _philly() -> dict[str, bytes]:
    files = _heads("philly", 30)
    jobs = json.loads((SAMPLES / "philly" / "cluster_job_log").read_bytes())[:15]
    return files | {"cluster_job_log": json.dumps(jobs, indent=1).encode()}


def _pai() -> dict[str, bytes]:
    """Return the unpacked PAI tables with the rows of a few jobs."""
    folder = SAMPLES / "alibaba-pai"
    whole = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in {".csv", ".header"}}
    for path in sorted(folder.glob("*.tar.gz")):
        with tarfile.open(path) as archive:
            for member in archive:
                stream = archive.extractfile(member)
                whole[member.name] = stream.read() if stream else b""
    jobs = {line.split(b",")[0] for line in whole["pai_job_table.csv"].splitlines()[:20]}
    files = {}
    for name, content in whole.items():
        lines = content.splitlines(keepends=True)
        ours = [line for line in lines if any(cell.strip() in jobs for cell in line.split(b","))]
        files[name] = b"".join(ours[:60] or lines[:30])
    return files


def _in_document(mapping: str) -> str:
    """Change a mapping of lines to one of an array in a document, with users' teams from another file."""
    mapping = mapping.replace('files = "jobs.*"', 'files = "jobs.json"\nrecords = "data.jobs"')
    return mapping.replace(
        'user = "user"', 'user = { columns = ["user", "id"] }\nvc = { column = "user", lookup = "teams" }'
    )


def _flux() -> bytes:
    """Return Flux jobs, one object per line, with R, jobspec, and eventlogs both as text and as lists."""
    lines = []
    for number in range(30):
        at = 1_700_000_000.5 + 60 * number
        events = [
            {"timestamp": at, "name": "submit", "context": {"userid": number % 3, "urgency": 16}},
            {"timestamp": at + 30, "name": "alloc"},
            {"timestamp": at + 3600, "name": "finish", "context": {"status": 256 * (number % 2)}},
        ][: 1 + number % 3]
        lite = [{"rank": f"{number % 4}-{number % 4 + 1}", "children": {"core": "0-7", "gpu": "0-3"}}]
        held = {"version": 1, "execution": {"R_lite": lite, "nodelist": [f"gpu[{number % 4}-{number % 4 + 1}]"]}}
        gpus = {"type": "slot", "count": 2, "label": "task", "with": [{"type": "gpu", "count": 1 + number % 4}]}
        spec = {"resources": [gpus], "attributes": {"system": {"duration": 3600.0, "queue": "q", "bank": "b"}}}
        log = "".join(json.dumps(event) + "\n" for event in events) if number % 2 else events
        lines.append({"id": number, "eventlog": log, "R": held if number % 3 else None, "jobspec": spec})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _mapped_job(number: int) -> dict[str, str]:
    hour = f"2017-10-{3 + number % 20:02} {number % 24:02}"
    return {
        "id": f"j{number}",
        "user": f"u{number % 4}",
        "submitted": f"{hour}:00:00",
        "started": f"{hour}:0{number % 9}:10",
        "ended": f"{hour}:5{number % 9}:00",
        "gpus": str(number % 9),
        "memory": f"{4 + number}Gi",
        "limit": "1-02:03:04",
        "state": "OK" if number % 3 else "ERR",
        "hosts": f"n{number % 5}:0-{number % 8};n9" if number % 2 else "",
    }


def _telemetry() -> dict[str, bytes]:
    times = [f"2017-10-03 08:{minute:02}:00" for minute in range(20)]
    wide = ["time,n1-0,n1-1,n2-0", *(f"{t},{i},{99 - i}," for i, t in enumerate(times))]
    long = [
        "time,node,gpu,metric,value",
        *(f"{t},n1,0,{m},{i}" for i, t in enumerate(times) for m in ("FB_USED", "POWER")),
    ]
    row = ["time,node,cpu", *(f"{t},n{i % 3},{i}" for i, t in enumerate(times))]
    return {
        name: "\n".join([*text, ""]).encode()
        for name, text in (("wide.csv", wide), ("long.csv", long), ("row.csv", row))
    }


def _parquet(rows: list[dict[str, str]]) -> bytes:
    import polars as pl

    buffer = io.BytesIO()
    pl.DataFrame(rows).with_columns(pl.col("gpus").cast(pl.Int64)).write_parquet(buffer)
    return buffer.getvalue()


def _tar(files: dict[str, bytes], mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]  # the stubs want a literal
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()
