"""Load `tracekit serve` for a long time, with some hostile clients.

    python benchmarks/serve_soak.py [--minutes 30] [--clients 50] [--hostile 10] [--pause 5] [--trace TRACE]

Ordinary clients have the token and, like people, request pages, parts, jobs, users and files, with a pause after each
request. Each hostile client repeats one attack. It keeps idle connections open, sends headers one byte per second,
sends huge headers, bodies and names, cancels requests, or requests report.json and reads nothing. Clients with one of
the last three attacks also have the token. Without TRACE, the script serves the Slurm sample trace. It reads memory
usage from /proc, so it runs only on Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING
from urllib.parse import quote

from tracekit.ingest import ingest_logs
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SAMPLE = Path(__file__).parents[1] / "sample_traces" / "slurm"
TOKEN = "a-token-of-the-benchmark"
HELD = 16
"""Number of connections that a hostile client keeps open at once."""
LONGEST_S = 90.0
"""Timeout of an ordinary client [s]."""
QUESTIONS = ("overview/status", "queuing/run_time", "queuing/cluster_timeline", "users/queueing", "failures/by_user")


@dataclass
class Soak:
    """The server's address, the possible requests, and the clients' results."""

    port: int
    users: list[str]
    jobs: list[str]
    pause_s: float
    random: random.Random = field(default_factory=lambda: random.Random(1))
    seconds: list[float] = field(default_factory=list)
    """Response times of ordinary clients."""
    errors: Counter[str] = field(default_factory=Counter)
    """Errors of ordinary clients."""
    attacks: Counter[str] = field(default_factory=Counter)

    def path(self) -> str:
        """Return an ordinary client's next request."""
        user, job = quote(self.random.choice(self.users), safe=""), quote(self.random.choice(self.jobs), safe="")
        question, narrow = self.random.choice(QUESTIONS), f"where.user={user}"
        some = [
            f"/answer/{question}?{narrow}",
            f"/first?{narrow}",
            f"/job/{job}",
            f"/user/{user}",
            f"/find?q={user[:3]}",
        ]
        return self.random.choice(["/", "/report.json", f"/tables/{question}.csv", *some, *some])

    async def opened(self, first: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection, send the first bytes, and return the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(first)
        return reader, writer


def question(path: str, *more: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}", *more, "", ""]
    return "\r\n".join(lines).encode()


async def ordinary(soak: Soak) -> None:
    begun, wait_s = time.monotonic(), soak.pause_s
    writer = None
    try:
        async with asyncio.timeout(LONGEST_S):
            reader, writer = await soak.opened(question(soak.path(), "Connection: close"))
            answer = await reader.read(-1)
        head = answer.partition(b"\r\n\r\n")[0]
        code = head.split()[1].decode() if head else "closed without an answer"
        if (after := re.search(rb"retry-after: (\d+)", head)) is not None:
            wait_s = int(after[1])
        if code in {"200", "303"}:
            soak.seconds.append(time.monotonic() - begun)
        else:
            soak.errors[code] += 1
    except TimeoutError:
        soak.errors["no answer in time"] += 1
    except ConnectionError as error:
        soak.errors[type(error).__name__] += 1
    finally:
        if writer is not None:
            writer.close()
    await asyncio.sleep(wait_s * soak.random.uniform(0.5, 1.5))


async def hold(soak: Soak, first: bytes, each_s: bytes = b"") -> None:
    """Keep connections open for ten seconds, sending `first`, then `each_s` every second, and reading nothing."""
    opened = [await soak.opened(first) for _ in range(HELD)]
    for _ in range(10):
        await asyncio.sleep(1)
        for _, writer in opened:
            if not writer.is_closing():
                writer.write(each_s)
    for _, writer in opened:
        writer.transport.abort()


async def idle(soak: Soak) -> None:
    await hold(soak, b"")


async def slow(soak: Soak) -> None:
    await hold(soak, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"x")


async def huge(soak: Soak) -> None:
    for first in (
        b"GET / HTTP/1.1\r\nX: " + b"x" * 2_000_000,
        question("/", "Content-Length: 1000000000") + b"x" * 2_000_000,
        question(f"/user/{'u' * 5000}"),
        question(f"/find?q={'%F0%9F%92%A9' * 4000}"),
    ):
        reader, writer = await soak.opened(first)
        async with asyncio.timeout(LONGEST_S):
            await reader.read(-1 if b"Content-Length" in first else 1000)
        writer.transport.abort()
    await asyncio.sleep(1)


async def cancelled(soak: Soak) -> None:
    since = f"20{soak.random.randrange(10, 24)}-{soak.random.randrange(1, 13):02}-01"
    path = f"/answer/{soak.random.choice(QUESTIONS)}?since={since}"
    opened = [await soak.opened(question(path)) for _ in range(4)]
    await asyncio.sleep(soak.random.uniform(0.01, 0.3))
    for _, writer in opened:
        writer.transport.abort()
    await asyncio.sleep(0.5)


async def deaf(soak: Soak) -> None:
    await hold(soak, question("/report.json") * 4)


HOSTILE = (idle, slow, huge, cancelled, deaf)


async def client(soak: Soak, act: Callable[[Soak], Awaitable[None]]) -> None:
    while True:
        if act is ordinary:
            await act(soak)
            continue
        with contextlib.suppress(OSError):  # the server closes such connections
            await act(soak)
        soak.attacks[act.__name__] += 1


async def soaked(soak: Soak, clients: int, hostile: int, seconds: float) -> None:
    acts = [HOSTILE[i % len(HOSTILE)] for i in range(hostile)] + [ordinary] * (clients - hostile)
    tasks = [asyncio.create_task(client(soak, act)) for act in acts]
    ended, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()  # a client ends only because of a bug in this script


def memory_mib(pid: int, name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return int(found[1]) / 1024 if found is not None else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--hostile", type=int, default=10)
    parser.add_argument("--pause", type=float, default=5, help="seconds between two requests of an ordinary client")
    parser.add_argument("--trace", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = Trace.open(options.trace) if options.trace else ingest_logs(SAMPLE, Path(folder) / "trace")
        jobs = trace.scan("jobs").select("job_id", "user").drop_nulls().head(1000).collect()
        words = [sys.executable, "-m", "tracekit", "serve", str(trace.path), "--port", "0", "--no-browser"]
        with subprocess.Popen([*words, "--token", TOKEN], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                port = int(server.stdout.readline().partition("127.0.0.1:")[2].partition("/")[0])
                soak = Soak(port, jobs["user"].unique().sort().to_list(), jobs["job_id"].to_list(), options.pause)
                first = memory_mib(server.pid, "VmRSS")
                asyncio.run(soaked(soak, options.clients, options.hostile, options.minutes * 60))
                last, peak = memory_mib(server.pid, "VmRSS"), memory_mib(server.pid, "VmHWM")
                assert server.poll() is None
            finally:
                server.terminate()
    cuts = quantiles(soak.seconds, n=20)
    errors = ", ".join(f"{count} {kind}" for kind, count in soak.errors.most_common()) or "none"
    print("| minutes | clients, hostile | answers | p50 | p95 | errors | memory at first, at last, peak |")
    print("|---|---|---|---|---|---|---|")
    print(
        f"| {options.minutes:g} | {options.clients}, {options.hostile} | {len(soak.seconds):,} | {cuts[9]:.2f} s "
        f"| {cuts[18]:.2f} s | {errors} | {first:,.0f}, {last:,.0f}, {peak:,.0f} MiB |"
    )
    print("attacks:", ", ".join(f"{count} {kind}" for kind, count in sorted(soak.attacks.items())))


if __name__ == "__main__":
    main()
