"""Plans are right for sites that another simulator runs with more nodes, and their intervals cover further months."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scipy import stats

from tests.capacity_plan.sites import MONTHS, further_months, planned_site

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "seed"), [("outages", 4), ("disjoint partitions", 2), ("overlapping partitions", 3)])
def test_a_plan_is_right_within_one_node_and_its_intervals_contain_the_effect(
    kind: str, seed: int, tmp_path: Path
) -> None:
    found = planned_site(kind, seed, tmp_path)
    assert found is not None
    assert found.right
    assert found.inside == {1: True, 2: True, 4: True}


@pytest.mark.thorough
def test_limits_that_stay_as_they_are_have_the_right_answer(tmp_path: Path) -> None:
    # The accounts' limits hold jobs back, so no number of nodes halves the wait. The twin has these limits.
    found = planned_site("account limits", 5, tmp_path)
    assert found is not None
    assert found.right
    assert found.inside == {1: True, 2: True, 4: True}


@pytest.mark.thorough
def test_intervals_cover_further_months() -> None:
    # About nine of ten months are inside, so of 20 at least 14; in 12 % of such tests all 20 are inside.
    inside = [month for seed in range(4) for month in further_months(seed, 0.85)]
    assert len(inside) == 4 * (MONTHS - 1)
    low, high = (int(stats.binom.ppf(q, len(inside), 0.9)) for q in (0.005, 0.995))
    for figure in (0, 1):
        assert low <= sum(month[figure] for month in inside) <= high
