"""Whom to evict, found without trying: running jobs give way one by one, the last in rank first, until a gang fits.

For a gang on one node this is a question to each node alone: the last of its own jobs that would have to go. The node
where that job is last in rank has room first. For larger gangs it is asked only whether there would be room at all.
"""

from __future__ import annotations

from typing import Any

from tracekit.replay.engine.compiled import inner
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.placement import BUDDY, accepts
from tracekit.replay.engine.state import DRIFT_TIME

__all__ = ["UNTOLD", "node_to_clear", "rank_limit", "room_without", "victims_on"]

UNTOLD = -2
"""There may be room; where shows only when the jobs are gone."""

_LAST = 2**63 - 1


@inner
def rank_limit(s: Any, j: int) -> int:
    """Return the key, as running jobs have it in their ranks, above which jobs come after waiting job j."""
    g = s.g[0]
    limit = int(s.jobs[j].key)
    return limit + g.now if g.drift == DRIFT_TIME else limit


@inner
def _last_to_go(s: Any, index: int, wanted: int, key: int, job: int) -> int:
    """Return the job with which a node has `wanted` free GPUs, its jobs gone from the last in rank up to this one.

    NONE when all jobs that come after (`key`, `job`) in rank are not enough.
    """
    free = int(s.nodes[index].free)
    last = int(NONE)
    link = s.nodes[index].holder
    while free < wanted:
        if link == NONE:
            return NONE
        take = s.takes[link]
        if take.key < key or (take.key == key and take.job <= job):
            return NONE
        free += take.gpus
        last = int(take.job)
        link = take.after
    return last


@inner
def victims_on(s: Any, index: int, wanted: int) -> int:
    """Write into `scratch` the jobs of a node that go until it has `wanted` free GPUs, last in rank first; how many."""
    free = int(s.nodes[index].free)
    link = s.nodes[index].holder
    count = 0
    while free < wanted and link != NONE:
        free += s.takes[link].gpus
        s.scratch[count] = s.takes[link].job
        link = s.takes[link].after
        count += 1
    return count


@inner
def room_without(s: Any, index: int, limit: int) -> int:
    """Return the GPUs that a node would have free without the jobs whose key, in their ranks, is greater."""
    node = s.nodes[index]
    room = int(node.free)
    link = node.holder
    while link != NONE and s.takes[link].key > limit:
        room += s.takes[link].gpus
        link = s.takes[link].after
    return room


@inner
def _some_group_has_room(s: Any, domain: Any, demand: Any, limit: int) -> bool:
    """Return whether a gang larger than any node would fit in a group without the jobs whose key is greater."""
    for index in range(domain.group_low, domain.group_high):
        group = s.groups[index]
        if not accepts(demand, index, domain.group_low):
            continue
        wanted = demand.gpus // group.largest
        rest = demand.gpus % group.largest
        whole = enough = 0
        for member in range(group.low, group.high):
            if s.nodes[member].up:
                room = room_without(s, member, limit)
                whole += room == group.largest
                enough += room >= rest
        if whole >= wanted and (rest == 0 or enough > wanted):
            return True
    return False


@inner
def _first_victim_suffices(s: Any, domain: Any, demand: Any, limit: int) -> int:
    """Return the node of the job that is last in rank if it alone stands in the way, else NONE."""
    first = s.g[0].jobs - 1 - s.ranks[domain.rank_base].job
    if s.jobs[first].nodes > 1:
        return NONE
    index = s.takes[s.jobs[first].take].node
    node = s.nodes[index]
    if node.up == 0 or not accepts(demand, node.group, domain.group_low):
        return NONE
    return index if _last_to_go(s, index, demand.gpus, limit, _LAST) == first else NONE


@inner
def node_to_clear(s: Any, d: int, j: int, demand: Any) -> int:
    """Return the node that has room for waiting job j first when jobs after it in rank go, the last first.

    NONE when there would be no room if all of them went; UNTOLD when this is not known, or the node is not. Running
    jobs are in rank, and the domain has one. `victims_on` tells who has to go.
    """
    g = s.g[0]
    domain = s.domains[d]
    if not g.listed or demand.scope > 0 or s.jobs[j].evicted or g.rule == BUDDY:
        return UNTOLD
    limit = rank_limit(s, j)
    kinds = _sizes(s, domain, demand)
    if kinds & 2:
        return UNTOLD if kinds & 1 or _some_group_has_room(s, domain, demand, limit) else NONE
    best = _first_victim_suffices(s, domain, demand, limit)
    return best if best != NONE else _first_to_have_room(s, domain, demand, limit)


@inner
def _sizes(s: Any, domain: Any, demand: Any) -> int:
    """Return whether there are groups where a gang may go to one node (1), where it needs more (2), or both (3)."""
    kinds = 0
    for index in range(domain.group_low, domain.group_high):
        if accepts(demand, index, domain.group_low):
            kinds |= 2 if demand.gpus > s.groups[index].largest else 1
    return kinds


@inner
def _first_to_have_room(s: Any, domain: Any, demand: Any, limit: int) -> int:
    """Return the one node that has room first, NONE, or UNTOLD when several are first."""
    best = NONE
    key, job = limit, _LAST
    for index in range(domain.group_low, domain.group_high):
        if not accepts(demand, index, domain.group_low):
            continue
        for member in range(s.groups[index].low, s.groups[index].high):
            if s.nodes[member].up == 0 or s.nodes[member].gpus < demand.gpus:
                continue
            last = _last_to_go(s, member, demand.gpus, key, job)
            if last == NONE:
                continue
            # With the same job two nodes get room at once: the rule of placement chooses.
            best = UNTOLD if last == job + 1 and best != NONE else member
            key, job = int(s.jobs[last].key), int(last - 1)
    return best
