"""A few hundred jobs of every kind that accounting distinguishes, in about three minutes."""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.services.configuration import CLUSTER, USERS
from tests.services.daemons import wait_until
from tests.services.sharded_sweep import submit_sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.services.daemons import Services

__all__ = ["ODD_NAMES", "Done", "add_accounts", "run_workload"]

ODD_NAMES = ('a|b, "c" é', "24' wafer", "sweep|lr=0.1|", "=1+1", "tab\there", "<b>bold</b>")
"""Job names that a careless reader misreads."""
_UNTIL_RUN = "if [ ${{SLURM_RESTART_COUNT:-0}} -lt $(({} - 1)) ]; then sleep 60; fi; sleep 3"
_STARTED_WITHIN = 180.0
"""Maximum wait for a job's start on a busy machine [s]."""
_ENDED_WITHIN = 180.0
"""Maximum time until the queue is empty after the last submission [s]."""


@dataclass
class Done:
    """Actions on jobs and machines, which the tests compare with tracekit's results."""

    jobs: dict[str, list[str]] = field(default_factory=dict)
    """Ids of each scene's jobs, as printed by sbatch."""
    events: list[tuple[str, str, str]] = field(default_factory=list)
    """Node, state and reason of each action on a machine, in order."""
    samples: list[str] = field(default_factory=list)
    """Output of `scontrol -d -o show job` on running jobs, sampled repeatedly."""
    said: list[str] = field(default_factory=list)
    """Time at which each scene ended."""


def add_accounts(services: Services) -> None:
    """Add accounts with limits, QOS and users."""
    every = "normal,low,high,scene,capped,grouped"
    for command in (
        "modify qos normal set Priority=50",
        "add qos low Priority=10",
        "add qos high Priority=100 Preempt=low",
        "add qos scene Priority=80",
        "add qos capped Priority=50 MaxTRESPerUser=gres/gpu=2",
        "add qos grouped Priority=50 GrpTRES=gres/gpu=3 MaxJobsPerUser=2",
        "add account lab Description=root Organization=lab",
        "add account vision parent=lab Description=vision Organization=lab",
        "add account speech parent=lab Description=speech Organization=lab",
        "add account nlp parent=lab Description=nlp Organization=lab GrpTRES=gres/gpu=10",
        f"add user alice,bob Account=vision QOS={every} DefaultQOS=normal",
        f"add user carol Account=speech QOS={every} DefaultQOS=normal",
        f"add user dave,erin Account=nlp QOS={every} DefaultQOS=normal",
        f"add user erin Account=speech QOS={every}",
    ):
        services.run("sacctmgr", "-i", *command.split())
    wait_until("users", lambda: "erin" in services.run("scontrol", "show", "assoc_mgr", "flags=users"))
    assert CLUSTER in services.run("sacctmgr", "-n", "show", "cluster")


def run_workload(services: Services, half_way: Callable[[], None]) -> Done:
    """Submit every kind of job, act on jobs and machines, and return when all jobs have ended.

    `half_way` is called when many jobs run and many wait.
    """
    scenes = _Scenes(services)
    with scenes.sampled():
        scenes.shards()
        scenes.crowd()
        scenes.limits()
        scenes.outcomes()
        scenes.dependencies()
        scenes.requeues()
        scenes.changes()
        scenes.lost_machine()
        half_way()
        scenes.preemption()
        scenes.repaired_machines()
        scenes.lost_machine_returns()
        scenes.finish()
    return scenes.done


class _Scenes:
    """The scenes, one per method."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.done = Done()
        self._begun = time.monotonic()

    def shards(self) -> None:
        """Run a tracekit sweep as root's job array."""
        for job in submit_sweep(self.services, self.services.base / "sweep"):
            self._note("shards", job)
        self._say("shards")

    def crowd(self) -> None:
        """Submit many short jobs, including gangs and arrays."""
        put = self._put
        put("sweep", "alice", "sleep 2", "--array=0-59%12", "--gres=gpu:1")
        put("tune", "bob", "sleep 2", "--array=1-40", "--gres=gpu:a100:2", "-c2")
        put("cpu", "bob", "sleep 1", "--array=1-40", "-c2")
        put("any", "carol", "sleep 1", "--array=1-30", "-p", "big", "--gres=gpu:1")
        put("h100", "erin", "sleep 1", "--array=1-20", "-p", "debug", "-A", "speech", "--gres=gpu:h100:1")
        for number in range(1, 7):
            put("sizes", "carol", f"sleep {number % 3 + 1}", f"--gres=gpu:{(1, 2, 4)[number % 3]}", "-c4")
        put("gang", "carol", "srun sleep 3", "-N2", "--gres=gpu:4", "--mem=100G")
        put("gang", "alice", "srun sleep 2; srun sleep 1", "-N3", "--gres=gpu:2", "--ntasks-per-node=2")
        put("wide", "bob", "sleep 3", "-p", "big", "-N4", "--gres=gpu:1")
        # 3 GPUs on one node and 4 on another, and 5 GPUs on two nodes.
        put("uneven", "bob", "sleep 10", "-N2", "-n7", "--gpus=a100:7")
        put("uneven", "alice", "sleep 10", "-N2", "-n5", "--gpus=5")
        het = ("--gres=gpu:2", "-n1", "-t3", ":", "--gres=gpu:1", "-n2", "-c3", "-t3")
        self._note("het", self._submit("carol", "sleep 4", *het))
        self._note("het", self._submit("alice", "srun --het-group=0,1 sleep 2", *het))
        for name in ODD_NAMES:
            put("odd", "alice", "sleep 1", "--gres=gpu:1", "--comment=x|y", name=name)
        self._say("crowd")

    def limits(self) -> None:
        """Submit jobs that limits delay or end."""
        self._put("capped", "dave", "sleep 2", "--array=1-6", "--qos=capped", "--gres=gpu:1")
        self._put("grouped", "alice", "sleep 2", "--array=1-6", "--qos=grouped", "--gres=gpu:1")
        self._put("quota", "dave", "sleep 2", "--array=1-6", "--gres=gpu:4")
        for _ in range(2):
            self._put("limit", "carol", "sleep 200", "--gres=gpu:1", "-t1", "--qos=scene")
        self._put("deadline", "erin", "sleep 1", "--gres=gpu:1", "-t1", "--begin=now+15", "--deadline=now+65")
        self._put("begin", "carol", "sleep 1", "--begin=now+20", "--gres=gpu:1")
        self._say("limits")

    def outcomes(self) -> None:
        """Submit jobs that fail, and jobs that are cancelled before or after their start."""
        for code in range(1, 6):
            self._put("failed", "erin", f"sleep {code % 3}; exit {code}", "--gres=gpu:1")
        self._put("killed", "erin", "sleep 1; kill -9 $$", "--gres=gpu:1")
        later = [self._put("later", "dave", "sleep 1", "--gres=gpu:4", "--begin=now+1hour") for _ in range(2)]
        later.append(self._put("held", "erin", "sleep 1", "--gres=gpu:1", "--hold"))
        self._command("scancel", *later)
        running = [self._put("cancelled", "erin", "sleep 90", "--gres=gpu:1", "--qos=scene") for _ in range(2)]
        for job in running:
            self._started(job)
        self._command("scancel", running[0])
        self._command("scancel", running[1])
        self._say("outcomes")

    def dependencies(self) -> None:
        """Submit jobs that wait for other jobs."""
        scene = ("--gres=gpu:1", "--qos=scene")
        first = self._put("first", "alice", "sleep 4", *scene)
        self._put("after", "alice", "sleep 1", *scene, f"--dependency=afterok:{first}")
        broken = self._put("broken", "alice", "sleep 1; exit 1", *scene)
        self._put("after", "alice", "sleep 1", *scene, f"--dependency=afterany:{broken}")
        self.never = self._put("never", "alice", "sleep 1", *scene, f"--dependency=afterok:{broken}")
        for _ in range(2):
            self._put("single", "bob", "sleep 2", *scene, "--dependency=singleton")
        self._say("dependencies")

    def requeues(self) -> None:
        """Submit jobs that run two or three times."""
        scene = ("--gres=gpu:1", "--qos=scene", "-t3")
        # Long enough to be still running when requeued, but short in the last run. Two jobs, because the accounting
        # database may lose a run on a busy host.
        twice = [self._put("requeued", user, _UNTIL_RUN.format(3), *scene) for user in ("alice", "carol")]
        array = self._put("requeued_task", "bob", _UNTIL_RUN.format(2), "--array=1", *scene)
        once = self._put("kept", "carol", "sleep 10", "--no-requeue", *scene)
        het = self._submit("alice", _UNTIL_RUN.format(2), *scene, "-n1", ":", "-n1", "--qos=scene")
        self._note("requeued_het", het)
        for job in (*twice, f"{array}_1", once, het):
            self._started(job)
        for job in (*twice, f"{array}_1", het):
            self._again("requeue", job)
        self._command("scontrol", "requeue", once)
        for job in twice:
            self._started(job)
        time.sleep(1)
        for job in twice:
            self._again("requeuehold", job)
        self._say("requeues")

    def changes(self) -> None:
        """Submit jobs that are suspended or give machines back while they run."""
        scene = ("--qos=scene", "-t3")
        stopped = self._put("suspended", "dave", "sleep 15", "--gres=gpu:1", *scene)
        smaller = self._put("resized", "carol", "sleep 20", "-N2", "--gres=gpu:2", *scene)
        for job in (stopped, smaller):
            self._started(job)
        time.sleep(2)
        self._command("scontrol", "suspend", stopped)
        self._command("scontrol", "update", f"jobid={smaller}", "NumNodes=1")
        time.sleep(4)
        self._command("scontrol", "resume", stopped)
        self._say("changes")

    def lost_machine(self) -> None:
        """Kill a machine under its jobs, which Slurm notices after half a minute."""
        scene = ("-p", "big", "-w", "node4", "--gres=gpu:1", "--qos=scene", "-t3", "-A", "speech")
        jobs = [
            self._put("lost", "erin", "sleep 100", *scene),
            self._put("lost_for_good", "erin", "sleep 100", "--no-requeue", *scene),
        ]
        for job in jobs:
            self._started(job)
        time.sleep(1)
        self.services.kill_node("node4")
        self.done.events.append(("node4", "DOWN", "Not responding"))
        self._say("lost machine")

    def preemption(self) -> None:
        """Submit jobs that are preempted and start again."""
        victims = [self._put("victim", "bob", "sleep 12", "--qos=low", "--gres=gpu:2", "-t3") for _ in range(6)]
        wait_until("victims", lambda: sum(self._is_running(job) for job in victims) >= 4, _STARTED_WITHIN, 0.5)
        time.sleep(1)
        self._put("urgent", "carol", "sleep 3", "--qos=high", "-N2", "--gres=gpu:4", "-t2")
        urgent = self.done.jobs["urgent"][0]
        self._started(urgent)
        for job in victims:
            self._now(job)
        self._say("preemption")

    def repaired_machines(self) -> None:
        """Drain a machine with a running job, and set another machine down."""
        scene = ("--qos=scene", "--gres=gpu:1", "-t2")
        stays = self._put("drained", "alice", "sleep 5", "-w", "node3", *scene)
        falls = self._put("down", "alice", "sleep 60", "-w", "node2", *scene)
        gone = self._put("down_for_good", "alice", "sleep 60", "-w", "node2", "--no-requeue", *scene)
        for job in (stays, falls, gone):
            self._started(job)
        self._node("node3", "drain", "ECC errors GPU 2")
        time.sleep(1)
        self._node("node2", "down", "NVLink fault, ticket 7 | see log")
        # The machine counts as drained after its last job has ended.
        wait_until("node3 drained", lambda: "drained" in self._state("node3"), 60, 0.5)
        time.sleep(3)
        for node in ("node2", "node3"):
            self._command("scontrol", "update", f"nodename={node}", "state=resume")
        self._now(falls)
        self._started(falls)
        time.sleep(2)
        self._command("scancel", falls)
        self._say("repaired machines")

    def lost_machine_returns(self) -> None:
        """Restart the dead machine, and its job with it."""
        wait_until("node4 down", lambda: "down" in self._state("node4"), 90, 0.5)
        time.sleep(2)
        self.services.start_node("node4")
        wait_until("node4 back", lambda: "down" not in self._state("node4"), 60, 0.5)
        (lost,) = self.done.jobs["lost"]
        self._now(lost)
        self._started(lost)
        time.sleep(2)
        self._command("scancel", lost)
        self._say("lost machine returns")

    def finish(self) -> None:
        """Wait until no jobs are left."""
        self._command("scancel", self.never)
        wait_until("the queue is empty", self._none_left, _ENDED_WITHIN, 1)
        self._say("finish")

    def _none_left(self) -> bool:
        queue = [line.split("|") for line in self.services.run("squeue", "-h", "-o", "%A|%r").splitlines()]
        for job, reason in queue:
            if reason == "BeginTime":
                self._now(job)
            # On a busy host, a machine that has just come back may fail to start a job, which Slurm then holds.
            if "held" in reason:
                self._command("scancel", job)
        return not queue

    @contextmanager
    def sampled(self) -> Iterator[None]:
        """Sample the allocations of running jobs every two seconds."""
        over = threading.Event()

        def ask() -> None:
            while not over.wait(2):
                with suppress(OSError, RuntimeError):
                    text = self.services.run("scontrol", "-d", "-o", "show", "job")
                    running = [line for line in text.splitlines() if "JobState=RUNNING" in line]
                    moment = time.strftime("%FT%T", time.gmtime())
                    self.done.samples += [f"# {moment}", *running]

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(60)

    def _say(self, scene: str) -> None:
        self.done.said.append(f"{time.monotonic() - self._begun:.0f} s: {scene}")

    def _note(self, scene: str, job: str) -> None:
        self.done.jobs.setdefault(scene, []).append(job)

    def _put(self, scene: str, user: str, script: str, *options: str, name: str = "") -> str:
        limit = () if any(option.startswith("-t") for option in options) else ("-t2",)
        job = self._submit(user, script, "-J", name or scene, *limit, *options)
        self._note(scene, job)
        return job

    def _submit(self, user: str, script: str, *options: str) -> str:
        number = USERS[user]
        text = self.services.run(
            "sbatch", "--parsable", f"--uid={number}", f"--gid={number}", "-o/dev/null", "-D/tmp", *options, "--wrap",
            f"{self.services.base}/etc/held.sh; {script}",
        )  # fmt: skip
        return text.split(";")[0].strip()

    def _command(self, *command: str) -> None:
        # Slurm refuses some of these commands, such as an illegal requeue, which is part of the scene.
        self.services.run(*command, check=False)

    def _node(self, node: str, state: str, reason: str) -> None:
        self.services.run("scontrol", "update", f"nodename={node}", f"state={state}", f"reason={reason}")
        self.done.events.append((node, state.upper(), reason))

    def _again(self, how: str, job: str) -> None:
        self.services.run("scontrol", how, job)
        wait_until(f"{job} pending", lambda: self._states(job) <= {"PENDING"}, 30)
        if how == "requeuehold":
            self.services.run("scontrol", "release", job)
        self._now(job)

    def _now(self, job: str) -> None:
        """Let a requeued job skip the two minutes for which Slurm holds it back."""
        ids = re.findall(r"\bJobId=(\d+)", self.services.run("scontrol", "-o", "show", "job", job, check=False))
        for number in ids:
            self._command("scontrol", "update", f"jobid={number}", "StartTime=now")

    def _states(self, job: str) -> set[str]:
        return set(re.findall(r"JobState=(\w+)", self.services.run("scontrol", "-o", "show", "job", job, check=False)))

    def _is_running(self, job: str) -> bool:
        return "RUNNING" in self._states(job)

    def _started(self, job: str) -> None:
        wait_until(f"{job} started", lambda: bool(self._states(job) - {"PENDING", "CONFIGURING"}), _STARTED_WITHIN, 0.3)

    def _state(self, node: str) -> str:
        return self.services.run("sinfo", "-h", "-N", "-n", node, "-o", "%T")
