"""Clusters whose nodes are alike, or bad to a known degree, with the clustered failures of real users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.guidelines.planted import Log

__all__ = ["BURST_AT", "Cluster"]

BURST_AT = 200 * 3600.0


@dataclass(frozen=True)
class Cluster:
    """A cluster on which jobs of one GPU land.

    Users differ in risk from 2 to 30 %. Each works in sessions: some jobs of one script within a few hours, on the few
    nodes that happen to be free. A script is broken or not: with `alike` in 1 a job fails when its script is broken, so
    that the jobs of a session end alike; with 0 each for itself.
    """

    nodes: int = 40
    users: int = 30
    sessions: int = 800
    alike: float = 0.5
    bad: tuple[int, ...] = ()
    """Numbers of the nodes on which a job fails with `bad_risk` besides."""
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
                # All is drawn for each job, so that its luck is the same whichever nodes are bad.
                with_others, alone, there = rng.random(3)
                own = broken if with_others < self.alike else alone < risks[user]
                failed = bool(own or (there < self.bad_risk and node in self.bad))
                self._job(log, rng, begin + float(rng.uniform(0, 3 * 3600)), node, failed, f"u{user}", name)
        return log

    def _job(
        self, log: Log, rng: np.random.Generator, submit: float, node: int, failed: bool, user: str, name: str
    ) -> None:
        # Half of the jobs that fail are tried again, up to five times, on the same node.
        again = int(rng.integers(-5, 6))
        trials = 1 + max(again, 0) if failed else 1
        status = "failed" if failed else "completed"
        log.job(submit, 60 if failed else 3600, attempts=(status,) * trials, node=f"n{node:02}", user=user, name=name)

    @staticmethod
    def burst(log: Log, jobs: int = 1000, nodes: int = 30) -> Log:
        """Add so many jobs of one user that fail after a second within an hour, most of them on few of the nodes."""
        rng = np.random.default_rng(0)
        shares = rng.dirichlet(np.full(nodes, 0.5))
        for number, node in enumerate(rng.choice(nodes, size=jobs, p=shares)):
            log.job(BURST_AT + number * 3, 1, status="failed", node=f"n{node:02}", user="u0", name="broken")
        return log

    @staticmethod
    def storm(log: Log, node: int = 0, attempts: int = 300) -> Log:
        """Add a job that is tried again so many times on one node, an attempt every ten minutes."""
        log.job(0, 600, attempts=("failed",) * attempts, node=f"n{node:02}", user="u1", name="storm")
        return log
