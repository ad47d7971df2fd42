"""Add machine events from any source by naming the cause, identifying the machine and writing the table."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import duckdb

    from tracekit.ingest.sink import Sink

_LETTER = re.compile(r"[^\W\d_]")

_RULES = (
    # XIDs come first: their numbers are more specific than the words around them (docs.nvidia.com/deploy/xid-errors).
    ("gpu memory", r"\bxid\D{0,3}(48|63|64|92|94|95)\b"),
    ("gpu lost", r"\bxid\D{0,3}79\b|off the bus|gpus? (is |was |are |were )?(lost|missing|gone)|lost gpus?\b"),
    # slurmd reports this if fewer GPUs respond than are configured (slurm.schedmd.com/slurm.conf.html).
    ("gpu lost", r"missing gpus?\b|gres/gpu count (reported )?(too low|lower)|gpu count (mismatch|low)"),
    ("nvlink", r"\bxid\D{0,3}74\b|nv-?link|nv-?switch|fabric ?manager"),
    ("gpu memory", r"\becc\b.*\bgpu|\bgpu.*\becc\b|double.?bit|\bdbe\b|row remap|retired pages?|\bhbm\b|gpu mem"),
    ("xid", r"\bxid\b"),
    ("network cable", r"\bcables?\b|link flap|transceiver|\boptics?\b|\bsfp\b|\bqsfp"),
    ("nic", r"\bnic\b|\bhca\b|infiniband|\bib[0-9_ ]|\bib\b|\bmlx\d|connectx|\broce\b|ethernet|\beth\d|network card"),
    ("power", r"\bpower\b|\bpsu\b|\bpdu\b|\bups\b|outage"),
    ("fan", r"\bfans?\b|overheat|\bthermal|temperature|cooling|too hot"),
    (
        "file system",
        r"file ?system|lustre|\bgpfs\b|\bnfs\b|beegfs|\bceph|\bmount|/scratch|disk (is )?full|no space left",
    ),
    ("maintenance", r"\bmaint|upgrad|\bupdat|firmware|\bbios\b|\bpatch|re-?imag|scheduled|planned|\breboot\b|swap out"),
    ("software", r"driver|\bcuda\b|prolog|epilog|kill task|slurmd|\bnvml\b|nvidia-smi|software|kernel module|daemon"),
    ("software", r"health ?check|\bnhc\b|duplicate jobid|config|batch job complete failure|docker|containerd|kubelet"),
    (
        "host",
        r"not responding|unexpected.*reboot|\bhost\b|\bcpus?\b|\bdimm|\bmce\b|machine check|motherboard|\bdisks?\b",
    ),
    (
        "host",
        r"kernel panic|\bcrash|\bhung\b|\bhang|low (real)?memory|low socket|\bram\b|\bmemory\b|\becc\b|\bbmc\b|ssd",
    ),
)
"""Patterns, tried in this order, ignoring case. They are our choice unless a comment names a source."""

_COMPILED = tuple((cause, re.compile(pattern, re.IGNORECASE)) for cause, pattern in _RULES)
_NOTHING = frozenset({"", "none", "(null)", "unknown", "n/a"})
_LOOKED_AT = 2_000

CAUSES = (*dict.fromkeys(cause for cause, _ in _RULES), "unknown")
"""Every possible cause."""


def cause_of(text: str | None) -> str | None:
    """Return the cause for a reason, 'unknown' if no rule matches, or None if there is no reason."""
    if text is None or text.strip().lower() in _NOTHING:
        return None
    return next((cause for cause, rule in _COMPILED if rule.search(text[:_LOOKED_AT])), "unknown")


class Machine(NamedTuple):
    """A machine's name and its cluster."""

    name: str
    cluster: str | None


def machine_ids(known: Iterable[Machine], found: Iterable[Machine]) -> tuple[dict[Machine, str], list[str]]:
    """Return the node_id of each machine in machine files, and the ambiguous names.

    A name matches the Trace's machine with the same node_id, or else with the node_id CLUSTER/NAME, or else with the
    same name up to the first dot. If both clusters are known, they must agree. A name without a match is a new machine,
    called CLUSTER/NAME if the Trace has several clusters, or only other ones.

    Parameters
    ----------
    known : iterable of Machine
        node_id and cluster of the Trace's machines.
    found : iterable of Machine
        Names in machine files, each with its cluster if the file names it.
    """
    mine, theirs = sorted(set(known), key=str), sorted(set(found), key=str)
    clusters = {machine.cluster for machine in mine if machine.cluster is not None}
    levels = tuple(_index(mine, key) for key in (_whole, _base, _short))
    shorts: dict[tuple[str, str | None], set[str]] = defaultdict(set)
    for machine in theirs:
        shorts[_short(machine.name), machine.cluster].add(machine.name)
    ids: dict[Machine, str] = {}
    doubtful: list[str] = []
    for machine in theirs:
        fits: list[Machine] = []
        for index, key in zip(levels, (_whole, _whole, _short), strict=True):
            if key is _short and len(shorts[_short(machine.name), machine.cluster]) > 1:
                continue
            fits = [
                other
                for other in index.get(key(machine.name), [])
                if machine.cluster is None or other.cluster is None or machine.cluster == other.cluster
            ]
            if fits:
                break
        if len(fits) > 1:
            doubtful.append(machine.name)
        elif fits:
            ids[machine] = fits[0].name
        else:
            apart = machine.cluster is not None and (len(clusters) > 1 or bool(clusters - {machine.cluster}))
            ids[machine] = f"{machine.cluster}/{machine.name}" if apart else machine.name
    return ids, doubtful


def match_machines(
    known: Iterable[Iterable[Any]], named: pl.DataFrame, sink: Sink, check: str, meaning: str
) -> pl.DataFrame:
    """Return the node_id of each machine in `named` (host, cluster), and count ambiguous names.

    Parameters
    ----------
    known : iterable of rows
        node_id and cluster of the Trace's machines.
    check, meaning : str
        The check that counts ambiguous names, and its meaning.
    """
    ids, doubtful = machine_ids((Machine(*row) for row in known), (Machine(*row) for row in named.iter_rows()))
    sink.check(check, len(doubtful), named.height, meaning, doubtful)
    kinds = {"host": pl.String, "cluster": pl.String, "node_id": pl.String}
    return pl.DataFrame([(*machine, node) for machine, node in ids.items()], schema=kinds, orient="row")


def _index(machines: list[Machine], key: Callable[[str], str]) -> dict[str, list[Machine]]:
    index: dict[str, list[Machine]] = defaultdict(list)
    for machine in machines:
        index[key(machine.name)].append(machine)
    return index


def _whole(name: str) -> str:
    return name


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _short(name: str) -> str:
    """Return the name up to the first dot. An IP address, which has no letters, is returned whole."""
    base = _base(name)
    first = base.partition(".")[0]
    return first if _LETTER.search(first) else base


def add_events(con: duckdb.DuckDBPyConnection, sink: Sink, events: str, kept: str = "true") -> None:
    """Add the rows of the query `events` to node_events, and keep existing rows that satisfy the condition `kept`."""
    if sink.has("node_events"):
        events = f"SELECT * FROM {sink.rows('node_events')} WHERE {kept} UNION ALL BY NAME {events}"
    sink.rewrite("node_events", con, f"SELECT * FROM ({events}) ORDER BY start_time, node_id, state, source")
