"""Daemons of a small Slurm cluster and of Prometheus, which end with the process that starts them."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.services.configuration import CLUSTER, MODELS, free_ports, write_files

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Services", "wait_until", "what_is_missing"]

_PROGRAMS = (
    "munged", "mariadbd", "mariadb", "mysql_install_db", "slurmdbd", "slurmctld", "slurmd", "sbatch", "scontrol",
    "sacct", "sacctmgr", "prometheus", "promtool", "setpriv",
)  # fmt: skip
_NSS_WRAPPER = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_STARTED_WITHIN = 60.0
"""Maximum time until a daemon answers [s]."""


def _nss_wrapper() -> Path | None:
    found = (Path(folder) / "libnss_wrapper.so" for folder in _NSS_WRAPPER)
    return next((path for path in found if path.exists()), None)


def what_is_missing() -> str:
    """Return why the services cannot run on this machine, or '' if they can."""
    if not sys.platform.startswith("linux"):
        return "they run on Linux alone"
    absent = [name for name in _PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:{_PATH}") is None]
    if _nss_wrapper() is None:
        absent.append("libnss_wrapper.so")
    if absent:
        return f"this machine lacks {', '.join(absent)} (CONTRIBUTING.md names the packages)"
    if os.geteuid() != 0:
        return "slurmd runs jobs of several users and has to be started by root"
    return "" if _devices_can_be_made() else "no device files can be made here, and gres.conf wants one for each GPU"


def _devices_can_be_made() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.mknod(Path(folder) / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except OSError:
            return False
    return True


def wait_until(what: str, true: Callable[[], bool], seconds: float = _STARTED_WITHIN, pause: float = 0.2) -> None:
    """Wait until `true` returns True.

    Raises
    ------
    TimeoutError
        The wait exceeded `seconds`.
    """
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)


class Services:
    """munged, mariadbd, slurmdbd, slurmctld, one slurmd per node and (on request) Prometheus, in one folder.

    Use it as a context manager. After the block, every process has ended, whatever happened inside.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.ports = free_ports()
        self.url = f"http://127.0.0.1:{self.ports.prometheus}"
        self.env = {
            **{name: text for name, text in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "SACCT"))},
            "PATH": f"{os.environ['PATH']}:{_PATH}",
            "SLURM_CONF": str(base / "etc" / "slurm.conf"),
            "LD_PRELOAD": str(_nss_wrapper()),
            "NSS_WRAPPER_PASSWD": str(base / "etc" / "passwd"),
            "NSS_WRAPPER_GROUP": str(base / "etc" / "group"),
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        # SIGTERM, with which the gate ends the tests, ends the services in good order, like Ctrl-C.
        self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            self._start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            signal.signal(signal.SIGTERM, self._before)

    def run(self, *command: str, seconds: float = 60, check: bool = True, time_format: str = "") -> str:
        """Run a Slurm command as root and return its output.

        Raises
        ------
        RuntimeError
            The command failed and `check` is set. The message contains the command's output.
        """
        form = {"SLURM_TIME_FORMAT": time_format} if time_format else {}
        done = subprocess.run(
            command, env={**self.env, **form}, capture_output=True, timeout=seconds, check=False, cwd="/tmp"
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode(errors="replace")

    def sql(self, query: str) -> list[list[str | None]]:
        """Return the rows of a query on the accounting database as strings."""
        out = self.run(*self._mariadb(), "--batch", "--skip-column-names", "slurm_acct_db", "--execute", query)
        rows = [line.split("\t") for line in out.splitlines()]
        return [[None if cell == "NULL" else cell for cell in row] for row in rows]

    def start_node(self, node: str) -> None:
        """Start a node's slurmd."""
        self._start(f"slurmd-{node}", "slurmd", "-D", "-N", node)

    def kill_node(self, node: str) -> None:
        """End a node's slurmd at once, as a power cut does."""
        process = self._running.pop(f"slurmd-{node}")
        process.kill()
        process.wait(10)
        scripts = self._belonging(f"SLURMD_NODENAME={node}")
        # End the supervisors of the scripts first, because they would report how the scripts ended.
        for pid in [*(_parent(script) for script in scripts), *scripts]:
            if pid > 1:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def start_prometheus(self, data: Path) -> None:
        """Serve the blocks below `data` at `url`."""
        self._start(
            "prometheus",
            "prometheus",
            f"--config.file={self.base}/etc/prometheus.yml",
            f"--storage.tsdb.path={data}",
            f"--web.listen-address=127.0.0.1:{self.ports.prometheus}",
            "--storage.tsdb.retention.time=60d",
            "--log.level=warn",
            # Without this, a series goes on for five minutes after its end.
            "--query.lookback-delta=500ms",
        )
        wait_until("prometheus", self._prometheus_is_ready)

    def stop(self) -> None:
        """End every process that belongs to these services."""
        for process in reversed(self._running.values()):
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        self._running.clear()
        for pid in self._belonging():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def log_ends(self) -> str:
        """Return the last lines of every log for an error message."""
        parts = []
        for path in sorted((self.base / "log").iterdir()):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-8:]
            parts.append("\n".join([f"== {path.name}", *lines]))
        return "\n".join(parts)

    def _start_all(self) -> None:
        write_files(self.base, self.ports)
        base, mysql = self.base, self.base / "mysql"
        key = base / "etc" / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self._start(
            "munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={base}/run/munge.sock",
            f"--pid-file={base}/run/munged.pid", f"--log-file={base}/log/munged.log",
            f"--seed-file={base}/run/munged.seed", "--num-threads=4",
        )  # fmt: skip
        self.run(
            "mysql_install_db", "--no-defaults", "--user=root", f"--datadir={mysql}", "--skip-test-db",
            "--auth-root-authentication-method=normal",
        )  # fmt: skip
        self._start(
            "mariadbd", "mariadbd", "--no-defaults", "--user=root", f"--datadir={mysql}", f"--socket={base}/run/mysql",
            f"--port={self.ports.mariadb}", "--bind-address=127.0.0.1", f"--pid-file={base}/run/mysql.pid",
            "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", "--innodb-log-file-size=32M",
            "--innodb-flush-log-at-trx-commit=0",
        )  # fmt: skip
        wait_until("mariadbd", lambda: self._works(*self._mariadb(), "--execute", "SELECT 1"))
        grants = "".join(
            f"CREATE USER slurm@'{host}' IDENTIFIED BY 'tk'; GRANT ALL ON slurm_acct_db.* TO slurm@'{host}';"
            for host in ("localhost", "127.0.0.1")
        )
        self.run(*self._mariadb(), "--execute", f"CREATE DATABASE slurm_acct_db; {grants}")
        wait_until("munged", (base / "run" / "munge.sock").exists)
        self._start("slurmdbd", "slurmdbd", "-D")
        wait_until("slurmdbd", lambda: self._works("sacctmgr", "-n", "show", "cluster"))
        self.run("sacctmgr", "-i", "add", "cluster", CLUSTER)
        self._start("slurmctld", "slurmctld", "-D")
        wait_until("slurmctld", lambda: "is UP" in self.run("scontrol", "ping", check=False))
        for node in MODELS:
            self.start_node(node)
        wait_until("slurmd", lambda: self.run("sinfo", "-h", "-p", "big", "-t", "idle", "-o", "%D").strip() == "4")

    def _start(self, name: str, *command: str) -> None:
        # setpriv makes the kernel end the daemons if this process is killed.
        with (self.base / "log" / f"{name}.out").open("ab") as out:
            self._running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env, cwd=self.base, start_new_session=True,
            )  # fmt: skip

    def _mariadb(self) -> tuple[str, ...]:
        return ("mariadb", "--no-defaults", f"--socket={self.base}/run/mysql", "--user=root")

    def _works(self, *command: str) -> bool:
        died = [name for name, process in self._running.items() if process.poll() is not None]
        if died:
            raise RuntimeError(f"{', '.join(died)} ended by itself\n{self.log_ends()}")
        try:
            return subprocess.run(command, env=self.env, capture_output=True, timeout=5, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _prometheus_is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _belonging(self, more: str = "") -> list[int]:
        """Return the daemons, steps and jobs that were started with this configuration and `more`."""
        marks = {f"SLURM_CONF={self.env['SLURM_CONF']}".encode(), *([more.encode()] if more else [])}
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    if marks <= set((entry / "environ").read_bytes().split(b"\0")):
                        found.append(int(entry.name))
        return found


def _parent(pid: int) -> int:
    """Return the slurmstepd that supervises a process, or 0 if another process does."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        parent = int(status.partition("\nPPid:")[2].split()[0])
        title = Path(f"/proc/{parent}/comm").read_text(encoding="utf-8")
        return parent if title.startswith("slurmstepd") else 0
    return 0
