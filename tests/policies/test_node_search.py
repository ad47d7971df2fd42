"""The search for nodes, beside the same search group by group."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.replay.builders import make_cluster
from tracekit.policies.network_tiers import fewest, pool_of


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), gpus=st.integers(1, 9))
def test_it_finds_what_going_through_the_groups_finds(data: st.DataObject, gpus: int) -> None:
    sizes = data.draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4))
    ends = np.cumsum([count for count, _ in sizes]).tolist()
    groups = [(end - count, end, largest) for (count, largest), end in zip(sizes, ends, strict=True)]
    room = np.array([data.draw(st.integers(0, largest)) for low, high, largest in groups for _ in range(low, high)])
    # Groups that a job does not accept leave gaps.
    some = [group for group in groups if data.draw(st.booleans())]
    racks = [f"r{index}" for index, (count, _) in enumerate(sizes) for _ in range(count)]
    cluster = make_cluster([largest for count, largest in sizes for _ in range(count)], rack=racks)
    nodes = np.array([node for low, high, _ in some for node in range(low, high)], np.int64)
    spot = fewest(pool_of(cluster, nodes, cluster.rack), gpus, room[nodes])
    found = None if spot is None else sorted(zip(spot.nodes, spot.gpus, strict=True))
    assert found == _by_group(some, gpus, room)


def _by_group(groups: list[tuple[int, int, int]], gpus: int, room: np.ndarray) -> list[tuple[int, int]] | None:
    single = [
        (int(room[node]), node)
        for low, high, largest in groups
        if gpus <= largest
        for node in range(low, high)
        if room[node] >= gpus
    ]
    if single:
        return [(min(single)[1], gpus)]
    for low, high, largest in groups:
        whole, rest = divmod(gpus, largest)
        nodes = [node for node in range(low, high) if room[node] == largest][:whole]
        others = [(-int(room[node]), node) for node in range(low, high) if node not in nodes and room[node] >= rest]
        if gpus > largest and len(nodes) == whole and (rest == 0 or others):
            last = [(min(others)[1], rest)] if rest else []
            return sorted([*((node, largest) for node in nodes), *last])
    return None
