"""A mapping of a job list, a line of such a list, and the rows that the line becomes."""

from __future__ import annotations

__all__ = ["ATTEMPT", "BASIC", "HEADER", "JOB", "LINE", "simple"]

BASIC = """
[source]
timezone = "America/Los_Angeles"
time_format = "%Y-%m-%d %H:%M:%S"
missing = ["None"]
cluster = "a"
[jobs]
files = "jobs*.csv"
[jobs.columns]
job_id = "id"
user = "who"
vc = "team"
submit_time = "created"
start_time = "started"
end_time = "ended"
gpu_count = "gpus"
[jobs.status]
column = "state"
completed = ["OK"]
failed = ["ERR", "BAD"]
running = ["RUN"]
"""
HEADER = "id,who,team,created,started,ended,gpus,state\n"
LINE = "j1,u1,t1,2017-10-03 08:00:00,2017-10-03 08:00:10,2017-10-03 08:01:40,4,OK\n"
JOB = {
    "job_id": "j1",
    "cluster": "a",
    "vc": "t1",
    "user": "u1",
    "status": "completed",
    "source_status": "OK",
    "submit_time": "2017-10-03 15:00:00",
    "start_time": "2017-10-03 15:00:10",
    "end_time": "2017-10-03 15:01:40",
    "queue_s": 10.0,
    "run_s": 90.0,
    "gpu_count": 4.0,
    "attempt_count": 1,
}
ATTEMPT = {
    "job_id": "j1",
    "attempt": 0,
    "start_time": "2017-10-03 15:00:10",
    "end_time": "2017-10-03 15:01:40",
    "run_s": 90.0,
    "wait_s": 10.0,
    "gpu_count": 4.0,
    "status": "completed",
}


def simple(columns: str, source: str = "") -> str:
    """Return a mapping with these job columns and times in seconds."""
    return f'[source]\ntime_format = "epoch_s"\n{source}\n[jobs.columns]\n{columns}\n'
