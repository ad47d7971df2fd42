"""Configuration files of a small Slurm cluster whose four GPU nodes are daemons on this machine."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CLUSTER", "GPUS_PER_NODE", "MODELS", "USERS", "Ports", "free_ports", "write_files"]

CLUSTER = "tk"
GPUS_PER_NODE = 4
MODELS = {"node1": "a100", "node2": "a100", "node3": "a100", "node4": "h100"}
"""The GPU model of each node."""
USERS = {"alice": 61001, "bob": 61002, "carol": 61003, "dave": 61004, "erin": 61005}
"""Users and their numbers. Only the daemons see them, through libnss_wrapper."""

_SLURM_CONF = """
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports.slurmctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={base}/run/munge.sock
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5
SwitchType=switch/none
ReturnToService=2
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
SlurmctldPidFile={base}/run/slurmctld.pid
SlurmdPidFile={base}/run/slurmd.%n.pid
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd.%n.log
Prolog={base}/etc/held.sh
PrologFlags=Alloc
KillWait=2
InactiveLimit=0
MinJobAge=3600
SlurmctldTimeout=60
SlurmdTimeout=15
OverTimeLimit=0
JobRequeue=1
MaxArraySize=1001
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,bf_continue,bf_max_job_test=500,default_queue_depth=500,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PreemptType=preempt/qos
PreemptMode=REQUEUE
PreemptExemptTime=00:00:00
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=1000
PriorityWeightQOS=5000
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports.slurmdbd}
AccountingStoragePass={base}/run/munge.sock
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:h100
AccountingStoreFlags=job_comment
JobCompType=jobcomp/none
GresTypes=gpu
{nodes}
PartitionName=gpu Nodes=node[1-3] Default=YES MaxTime=1-00:00:00 DefaultTime=00:10:00 DefMemPerCPU=1000 State=UP
PartitionName=big Nodes=node[1-4] MaxTime=1-00:00:00 DefaultTime=00:10:00 DefMemPerCPU=1000 State=UP
PartitionName=debug Nodes=node4 MaxTime=00:05:00 DefaultTime=00:02:00 DefMemPerCPU=1000 State=UP
"""

_NODE = (
    "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=32 Boards=1 SocketsPerBoard=2"
    " CoresPerSocket=16 ThreadsPerCore=1 RealMemory=512000 Gres=gpu:{model}:{gpus} State=UNKNOWN"
)

_SLURMDBD_CONF = """
AuthType=auth/munge
AuthInfo={base}/run/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={ports.slurmdbd}
SlurmUser=root
DebugLevel=info
LogFile={base}/log/slurmdbd.log
PidFile={base}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={ports.mariadb}
StorageUser=slurm
StoragePass=tk
StorageLoc=slurm_acct_db
"""

# Each machine records the numbers of the GPUs allocated to a job before the job's first run. slurmd does not always do
# so again before the next run, so each job's script also does it.
_HELD = """#!/bin/sh
echo "$(date +%s)|$SLURM_JOB_ID|$SLURMD_NODENAME|$SLURM_JOB_GPUS" >>{base}/run/held
"""


@dataclass(frozen=True)
class Ports:
    """The ports of one set of services."""

    slurmctld: int
    slurmdbd: int
    mariadb: int
    prometheus: int
    slurmd: tuple[int, ...]


def free_ports() -> Ports:
    """Return ports that are unused now."""
    sockets = [socket.socket() for _ in range(4 + len(MODELS))]
    try:
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        numbers = [opened.getsockname()[1] for opened in sockets]
    finally:
        for opened in sockets:
            opened.close()
    return Ports(numbers[0], numbers[1], numbers[2], numbers[3], tuple(numbers[4:]))


def write_files(base: Path, ports: Ports) -> None:
    """Write the configuration below `base`, and make the folders that it names."""
    for name in ("etc", "run", "log", "state", "spool", "mysql", "dev", "prometheus"):
        (base / name).mkdir()
    nodes = "\n".join(
        _NODE.format(name=name, model=model, gpus=GPUS_PER_NODE, port=port)
        for (name, model), port in zip(MODELS.items(), ports.slurmd, strict=True)
    )
    facts = {"base": base, "ports": ports, "cluster": CLUSTER, "nodes": nodes, "host": socket.gethostname()}
    # Unless gres.conf has a device for each GPU, jobs do not learn which GPUs they have. All devices are /dev/null.
    for number in range(GPUS_PER_NODE):
        os.mknod(base / "dev" / f"nvidia{number}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    gres = "".join(
        f"NodeName={node} Name=gpu Type={model} File={base}/dev/nvidia[0-{GPUS_PER_NODE - 1}]\n"
        for node, model in MODELS.items()
    )
    etc = base / "etc"
    (etc / "slurm.conf").write_text(_SLURM_CONF.format(**facts), encoding="ascii")
    (etc / "gres.conf").write_text(gres, encoding="ascii")
    (etc / "slurmdbd.conf").write_text(_SLURMDBD_CONF.format(**facts), encoding="ascii")
    (etc / "slurmdbd.conf").chmod(0o600)
    (etc / "held.sh").write_text(_HELD.format(**facts), encoding="ascii")
    (etc / "held.sh").chmod(0o755)
    (base / "run" / "held").touch()
    (base / "run" / "held").chmod(0o666)
    (etc / "prometheus.yml").write_text("global: {scrape_interval: 1h}\n", encoding="ascii")
    people = [f"{name}:x:{number}:{number}::/tmp:/bin/sh\n" for name, number in USERS.items()]
    groups = [f"{name}:x:{number}:\n" for name, number in USERS.items()]
    (etc / "passwd").write_text("".join(["root:x:0:0::/root:/bin/sh\n", *people]), encoding="ascii")
    (etc / "group").write_text("".join(["root:x:0:\n", *groups]), encoding="ascii")
