"""Twins of planted sites: their grades, and their effects next to the same sites under the changed rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.worlds.effects import Reported, judged_site
from tests.worlds.kinds import KNOWN, OUTSIDE

if TYPE_CHECKING:
    from pathlib import Path

USABLE = {"close", "fair"}


def test_a_site_with_preemption_is_found_with_its_effects(tmp_path: Path) -> None:
    (part,) = judged_site("preemption", 1, tmp_path)
    assert part.grade == "close"
    assert part.share == 1
    assert part.rules.endswith("jobs of the QOS high may stop jobs of low")
    assert [one.change for one in part.effects] == ["strict", "easy", "shortest", "+1", "+2", "+4"]
    for one in part.effects:
        assert one.inside
        assert not one.wrong_sign
        assert one.changed_s == pytest.approx(one.true_s, rel=0.01, abs=1)


def test_an_effect_is_compared_with_the_truth() -> None:
    shorter = Reported("easy", 100, 60, 50, 70, true_s=71)
    assert shorter.inside
    assert not shorter._replace(true_s=72).inside
    assert not shorter._replace(true_s=72).wrong_sign
    assert shorter._replace(true_s=101).wrong_sign
    assert not shorter._replace(high_s=100, true_s=101).wrong_sign
    assert shorter._replace(changed_s=150, low_s=120, high_s=170, true_s=99).wrong_sign


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [kind for kind in KNOWN if kind != "reservations"])
def test_a_site_whose_rules_are_known_is_found(kind: str, tmp_path: Path) -> None:
    parts = judged_site(kind, 0, tmp_path)
    effects = [one for part in parts for one in part.effects]
    assert max(parts, key=lambda part: part.share).grade in USABLE
    assert not any(one.wrong_sign for one in effects)
    assert sum(one.inside for one in effects) >= 0.8 * len(effects)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["reservations", *OUTSIDE])
def test_a_site_with_another_rule_has_no_effects(kind: str, tmp_path: Path) -> None:
    for part in judged_site(kind, 0, tmp_path):
        assert part.grade not in USABLE
        assert part.effects == ()
