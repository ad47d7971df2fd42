"""Clusters whose nodes are equal, or bad to a known degree, with clustered failures as from real users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.guidelines.planted import Log

__all__ = ["BURST_AT", "Cluster"]

BURST_AT = 200 * 3600.0


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs one-GPU jobs.

    The users' risks range from 2 to 30 %. Each user works in sessions, which consist of several jobs of one script
    within a few hours, on the few nodes that happen to be free. With `alike` = 1, a job fails if its script is broken,
    so that all jobs of a session end in the same way. With 0, each job fails independently.
    """

    nodes: int = 40
    users: int = 30
    sessions: int = 800
    alike: float = 0.5
    bad: tuple[int, ...] = ()
    """Numbers of the nodes on which a job also fails with the risk `bad_risk`."""
    bad_risk: float = 0.3

    def log(self, seed: int) -> Log:
        """Return the log of 30 days."""
        rng = np.random.default_rng(seed)
        log = Log()
        risks = rng.uniform(0.02, 0.3, self.users)
        activity = rng.dirichlet(np.full(self.users, 1.0))
        for _ in range(self.sessions):
            user = int(rng.choice(self.users, p=activity))
            begin = float(rng.uniform(0, 30 * 86400))
            near = rng.choice(self.nodes, size=3, replace=False)
            broken = rng.random() < risks[user]
            name = f"script{user}-{rng.integers(5)}"
            for _ in range(int(rng.integers(1, 12))):
                node = int(rng.choice(near))
                # Sample everything for each job, so that its outcome does not depend on which nodes are bad.
                with_others, alone, there = rng.random(3)
                own = broken if with_others < self.alike else alone < risks[user]
                failed = bool(own or (there < self.bad_risk and node in self.bad))
                self._job(log, rng, begin + float(rng.uniform(0, 3 * 3600)), node, failed, f"u{user}", name)
        return log

    def _job(
        self, log: Log, rng: np.random.Generator, submit: float, node: int, failed: bool, user: str, name: str
    ) -> None:
        # Half of the failed jobs are retried up to five times on the same node.
        again = int(rng.integers(-5, 6))
        trials = 1 + max(again, 0) if failed else 1
        status = "failed" if failed else "completed"
        log.job(submit, 60 if failed else 3600, attempts=(status,) * trials, node=f"n{node:02}", user=user, name=name)

    @staticmethod
    def burst(log: Log, jobs: int = 1000, nodes: int = 30) -> Log:
        """Add jobs of one user within an hour that fail after a second, most of them on few of the nodes."""
        rng = np.random.default_rng(0)
        shares = rng.dirichlet(np.full(nodes, 0.5))
        for number, node in enumerate(rng.choice(nodes, size=jobs, p=shares)):
            log.job(BURST_AT + number * 3, 1, status="failed", node=f"n{node:02}", user="u0", name="broken")
        return log

    @staticmethod
    def storm(log: Log, node: int = 0, attempts: int = 300) -> Log:
        """Add a job with many attempts on one node, one every ten minutes."""
        log.job(0, 600, attempts=("failed",) * attempts, node=f"n{node:02}", user="u1", name="storm")
        return log
