"""The assumption models: the numbers of the cards by hand, and what they may never do."""

from __future__ import annotations

import pickle
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit
from tests.replay.builders import make_cluster, make_jobs
from tracekit.errors import UsageError
from tracekit.replay.assumptions import costs, of_jobs, speeds
from tracekit.replay.assumptions.models import load_models, used_assumptions
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.reviewed import Golden
    from tracekit.replay.assumptions.models import Models

PPM = 1_000_000
DEFAULT = load_models()
ppms = st.integers(0, PPM)


def changed(tmp_path: Path, text: str) -> Models:
    file = tmp_path / "own.toml"
    file.write_text(text, encoding="utf-8")
    return load_models(file)


# ---- the file ----


def leaves(data: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def test_every_assumption_of_the_cards_is_there_once() -> None:
    ids = [id_ for note in DEFAULT.notes.values() for id_ in note.ids]
    assert len(ids) == len(set(ids))
    assert {f"M{i}" for i in range(12)} | {f"D{i}" for i in range(1, 10)} <= set(ids)


def test_every_number_has_a_source_and_a_known_kind_of_evidence() -> None:
    kinds = {
        "released code", "released data", "published", "third-party notes", "from memory", "our assumption",
    }  # fmt: skip
    file = Path(tracekit.__file__).parent / "replay" / "assumptions" / "models.toml"
    for section, data in tomllib.loads(file.read_text(encoding="utf-8")).items():
        told = {key: value for key, value in data.items() if key not in ("ids", "title", "says", "sources")}
        covered = [key for source in data["sources"] for key in source["of"]]
        bare = [k for k in leaves(told) if not any(k == c or k.startswith(f"{c}.") for c in covered)]
        assert (section, bare) == (section, [])
        assert all(source["from"] and source["evidence"] in kinds for source in data["sources"])
        names = set(leaves(told))
        stale = [c for c in covered if not any(k == c or k.startswith(f"{c}.") for k in names)]
        assert (section, stale) == (section, [])


# ---- spread (M4, D4) ----


@pytest.mark.parametrize(("level", "expected"), [("low", 909_091), ("default", 625_000), ("high", 263_158)])
def test_spread_of_8_gpus_over_4_nodes_at_each_level(tmp_path: Path, level: str, expected: int) -> None:
    models = changed(tmp_path, f'spread.level = "{level}"')
    assert speeds.spread_ppm(models, 8, 4, 1) == expected


def test_spread_counts_doublings_of_the_fewest_nodes_and_another_rack_is_one_more() -> None:
    found = speeds.spread_ppm(
        DEFAULT, [4, 4, 16, 16, 4], [1, 2, 2, 4, 1], [1, 1, 2, 2, 1], [False, False, False, False, True]
    )
    one = round(PPM / 1.3)
    assert found.tolist() == [PPM, one, PPM, one, one]


def test_spread_of_a_known_family_is_its_measured_speed() -> None:
    found = speeds.spread_ppm(DEFAULT, [8, 8, 8, 16], [4, 2, 1, 4], [1, 1, 1, 2], family="vgg16")
    assert found.tolist() == [260_000, 570_000, PPM, round(PPM / 1.3)]
    assert speeds.spread_ppm(DEFAULT, 8, 2, 1, other_rack=True, family="vgg16") == 260_000


@given(st.integers(1, 1000), st.integers(1, 1000), st.booleans())
def test_spread_never_helps_and_more_nodes_never_help(nodes: int, fewest: int, far: bool) -> None:
    here, wider = speeds.spread_ppm(DEFAULT, 8, [nodes, nodes + 1], fewest, far)
    assert 1 <= wider <= here <= PPM


def test_simple_locality_is_off_and_can_be_switched_on(tmp_path: Path) -> None:
    assert speeds.locality_ppm(DEFAULT, [1, 2], 1).tolist() == [PPM, PPM]
    assert speeds.locality_ppm(changed(tmp_path, 'locality.sensitive = "all"'), [1, 2], 1).tolist() == [PPM, 900_000]


# ---- sharing (M1, D5, M2, M3) ----


def test_two_busy_jobs_halve_each_other_and_an_idle_partner_costs_nothing() -> None:
    found = speeds.interference_ppm(DEFAULT, [PPM, PPM, 0, 500_000], [PPM, 0, PPM, 500_000])
    assert found.tolist() == [500_000, PPM, PPM, 875_000]


@pytest.mark.parametrize(("level", "expected"), [("light", 633_000), ("default", 500_000), ("heavy", 370_000)])
def test_interference_of_busy_jobs_at_each_level(tmp_path: Path, level: str, expected: int) -> None:
    assert speeds.interference_ppm(changed(tmp_path, f'interference.level = "{level}"'), PPM, PPM) == expected


def test_interference_is_rounded_half_up_in_integers() -> None:
    # 0.5 * 0.000001 * 0.999999 = 0.0000004999995 and 0.5 * 0.000001 * 1 = 0.0000005
    assert speeds.interference_ppm(DEFAULT, 1, [999_999, PPM]).tolist() == [PPM, PPM - 1]


def test_several_partners_multiply_and_their_order_does_not_matter() -> None:
    assert speeds.interference_ppm(DEFAULT, PPM, PPM, 500_000) == 375_000
    assert speeds.interference_ppm(DEFAULT, PPM, 500_000, PPM, 0) == 375_000


def test_the_sum_rule_slows_only_above_one_gpu(tmp_path: Path) -> None:
    models = changed(tmp_path, 'interference.rule = "sum"')
    found = speeds.interference_ppm(models, [PPM, 600_000, 300_000], [PPM, 600_000, 300_000])
    assert found.tolist() == [500_000, 833_333, PPM]


@given(ppms, ppms, ppms)
def test_interference_keeps_within_bounds_and_grows_with_the_partner(u: int, v: int, w: int) -> None:
    light, busy = sorted((v, w))
    assert 500_000 <= speeds.interference_ppm(DEFAULT, u, busy) <= speeds.interference_ppm(DEFAULT, u, light) <= PPM
    both = speeds.interference_ppm(DEFAULT, u, v, w)
    assert 1 <= both <= speeds.interference_ppm(DEFAULT, u, busy)


def test_classes_of_sharing_and_their_speeds() -> None:
    assert of_jobs.sharing_class(DEFAULT, [299_999, 300_000, 649_999, 650_000]).tolist() == [0, 1, 1, 2]
    assert speeds.class_speed_ppm(DEFAULT, [0, 1, 2, 2], [0, 2, 1, 2]).tolist() == [PPM, 830_000, 890_000, 760_000]


def test_unknown_utilization_is_that_of_philly_and_memory_is_a_bracket(tmp_path: Path) -> None:
    jobs = make_jobs([(0, 1, 1)] * 3, utilization=[float("nan"), 0.25, 1.0], milli=[1000, 250, 1000])
    assert of_jobs.utilization_ppm(DEFAULT, jobs).tolist() == [520_000, 250_000, PPM]
    assert of_jobs.memory_ppm(DEFAULT, jobs).tolist() == [450_000, 250_000, 450_000]
    single = changed(tmp_path, 'memory.level = "single"')
    assert of_jobs.memory_ppm(single, jobs).tolist() == [550_000, 250_000, 550_000]


def test_sub_batches_cost_speed_and_save_memory() -> None:
    assert speeds.accumulation_ppm(DEFAULT, [1, 2, 4]).tolist() == [PPM, 952_381, 909_091]
    assert speeds.accumulated_memory_ppm(DEFAULT, 500_000, [1, 2, 4]).tolist() == [500_000, 350_000, 275_000]


# ---- stages and CPUs (M5, M6) ----


def test_stages_follow_utilization_and_sum_to_one() -> None:
    found = speeds.stages_ppm(DEFAULT, [520_000, 520_000], [False, True])
    assert found.tolist() == [[480_000, 520_000, 0], [360_000, 520_000, 120_000]]
    assert speeds.stages_ppm(DEFAULT, 0, gpus=16, family="vgg16").tolist() == [366_336, 336_634, 297_030]
    assert speeds.stages_ppm(DEFAULT, 0, gpus=1, family="resnet18").tolist() == [800_000, 120_000, 80_000]


def test_cpu_curves_are_linear_between_points_and_flat_beyond() -> None:
    found = speeds.cpu_speed_ppm(DEFAULT, "resnet50", [0, 0.5, 1, 2.5, 3, 4, 100])
    assert found.tolist() == [0, 200_000, 400_000, 870_000, PPM, 1_150_000, 1_150_000]
    assert speeds.cpu_speed_ppm(DEFAULT, "shufflenet", 12) == 2_000_000
    assert speeds.cpu_speed_ppm(DEFAULT, "shufflenet", 12, 125) == 2_890_000
    assert speeds.cpu_speed_ppm(DEFAULT, "bert", [1, 24]).tolist() == [PPM, PPM]


def test_families_are_drawn_once_per_name_and_follow_the_split() -> None:
    n = 20_000
    jobs = make_jobs([(i, 1, 1) for i in range(n)], name=[i // 2 for i in range(n)])
    found = of_jobs.cpu_families(DEFAULT, jobs, 1)
    assert (found[::2] == found[1::2]).all()
    kinds = np.array([curve.kind for curve in DEFAULT.cpu.families.values()])[found]
    shares = [float((kinds == kind).mean()) for kind in ("image", "language", "speech")]
    assert shares == pytest.approx([0.2, 0.7, 0.1], abs=0.02)


# ---- power (M7) ----


@pytest.mark.parametrize(("workload", "best", "saving"), [("compute", 0.69, 13.5), ("memory", 0.63, 17.5)])
def test_the_best_clock_saves_what_the_card_says(tmp_path: Path, workload: str, best: float, saving: float) -> None:
    models = changed(tmp_path, f'power.workload = "{workload}"')
    f = np.arange(0.3, 1.0001, 0.01)
    energy = costs.power_w(models, f, 1.0) / costs.clock_speed_ppm(models, f)
    least = int(energy.argmin())
    assert round(float(f[least]), 2) == best
    assert round(100 * (1 - float(energy[least] / energy[-1])), 1) == saving


def test_power_at_full_clock_is_linear_in_utilization() -> None:
    assert costs.power_w(DEFAULT, 1, [0, 0.5, 1]).tolist() == [75, 187.5, 300]
    assert costs.power_mw(DEFAULT, PPM, PPM, "MI250X") == 560_000
    assert costs.power_w(DEFAULT, 1, 0, "p100-pcie") == 50
    assert costs.power_w(DEFAULT, 1, 0, "unheard of") == 75


@given(ppms, ppms, ppms)
def test_power_grows_with_clock_and_stays_within_the_card(f: int, g: int, u: int) -> None:
    slow, fast = sorted((f, g))
    assert 0 < costs.power_mw(DEFAULT, slow, u) <= costs.power_mw(DEFAULT, fast, u) <= 300_000


# ---- elastic (M8, D3) ----


def test_speed_on_other_sizes_is_normalized_to_the_request(tmp_path: Path) -> None:
    assert speeds.elastic_ppm(DEFAULT, 4, [0, 1, 4, 8]).tolist() == [0, 272_500, PPM, round(PPM * 2 * 1.09 / 1.21)]
    linear = changed(tmp_path, "elastic.sigma = 0")
    assert speeds.elastic_ppm(linear, 4, [1, 2, 8]).tolist() == [250_000, 500_000, 2_000_000]
    low, high = speeds.elastic_bounds(DEFAULT, [1, 2, 5, 8])
    assert (low.tolist(), high.tolist()) == ([1, 1, 2, 2], [2, 4, 10, 16])


def test_rigid_jobs_keep_their_size(tmp_path: Path) -> None:
    rigid = changed(tmp_path, "elastic.rigid = true")
    assert speeds.elastic_ppm(rigid, 4, [3, 4, 8]).tolist() == [0, PPM, PPM]
    low, high = speeds.elastic_bounds(rigid, [4])
    assert (low.tolist(), high.tolist()) == ([4], [4])


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_more_gpus_never_slow_a_job_and_never_help_more_than_their_number(g: int, n: int) -> None:
    here, more = speeds.elastic_ppm(DEFAULT, g, [n, n + 1])
    assert 0 < here <= more
    assert more <= here * (n + 1) / n + 1


# ---- costs (M9) ----


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("none", [0, 0, 0, 0]),
        ("helios", [7_000, 30_000, 30_000, 60_000]),
        ("lucid", [40_000, 40_000, 40_000, 60_000]),
        ("shockwave", [20_000] * 4),
        ("pollux", [30_000] * 4),
        ("sia", [30_000] * 4),
        ("muri", [10_000] * 4),
        ("elasticflow", [31_000, 33_000, 37_000, 39_000]),
        ("elasticflow-cached", [4_000, 6_000, 10_000, 12_000]),
        ("elasticflow-large", [54_000] * 4),
        ("chronus", [30_000, 60_000, 120_000, 150_000]),
        ("gandiva", [1_000] * 4),
        ("uniform", [30_000] * 4),
    ],
)
def test_overheads_of_1_2_8_and_16_gpus(preset: str, expected: list[int]) -> None:
    assert costs.overhead_ms(DEFAULT, preset, [1, 2, 8, 16]).tolist() == expected


def test_overheads_by_event_and_by_model_family() -> None:
    assert costs.overhead_ms(DEFAULT, "gandiva", 1, "migrate") == 2_000
    assert costs.overhead_ms(DEFAULT, "voda", [1, 9], "resize").tolist() == [10_000, 10_000]
    assert costs.overhead_ms(DEFAULT, "helios", 9, "migrate") == 60_000
    assert costs.overhead_ms(DEFAULT, "muri", [4, 8], family="a2c").tolist() == [10_000, 46_000]
    assert costs.overhead_ms(DEFAULT, "muri", [1, 8], family="resnet18").tolist() == [4_000, 4_000]


def test_lost_work_adds_to_each_preemption() -> None:
    models = load_models()
    losing = replace(models, overhead=replace(models.overhead, lost_work_s=600.0))
    assert costs.overhead_ms(losing, "helios", [1, 8]).tolist() == [607_000, 630_000]
    assert costs.overhead_ms(losing, "voda", [4], "resize").tolist() == [10_000]
    # The first job is stopped after 10 s for a shorter one. When that has ended, it holds its GPU for 600 s, and then
    # for the 90 s that it still has to do.
    jobs = make_jobs([(0, 1, 100), (10, 1, 20)])
    ends = Scenario.make(jobs, make_cluster((1,)), models=losing).run("srtf,overhead=none").outcome.end_ms
    assert ends.tolist() == [30_000 + 600_000 + 90_000, 30_000]


def test_an_unknown_overhead_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="'helio' is not an overhead preset; did you mean 'helios'"):
        costs.overhead_ms(DEFAULT, "helio", 1)


# ---- jobs (M10, M11, D6, D7, D8) ----


def test_what_the_trace_says_of_preemption_decides_and_users_keep_their_class() -> None:
    n = 3_000
    jobs = make_jobs(
        [(i, 1, 1) for i in range(n)],
        user=[f"u{i // 3}" for i in range(n)],
        preemptible=[(-1, -1, i // 3 % 2)[i % 3] for i in range(n)],
    )
    found = of_jobs.classes(DEFAULT, jobs, 5)
    assert found[2::3].tolist() == [i % 2 for i in range(n // 3)]
    assert (found[::3] == found[1::3]).all()
    assert float(found[::3].mean()) == pytest.approx(0.5, abs=0.06)
    alone = make_jobs([(0, 1, 1)], user="u7")
    assert of_jobs.classes(DEFAULT, alone, 5)[0] == found[21]
    assert (of_jobs.classes(DEFAULT, jobs, 6) != found).any()


def test_a_share_of_zero_or_one_leaves_no_coin(tmp_path: Path) -> None:
    jobs = make_jobs([(0, 1, 1)] * 50, user=[None if i % 2 else f"u{i}" for i in range(50)])
    assert of_jobs.classes(changed(tmp_path, "classes.opportunistic_share = 0"), jobs, 1).sum() == 0
    assert of_jobs.classes(changed(tmp_path, "classes.opportunistic_share = 1"), jobs, 1).sum() == 50


def test_estimates_are_exact_by_default_and_the_same_for_a_seed() -> None:
    work = np.array([0, 1, 10**6, 10**9])
    for noise in (None, "oracle", 0, "0"):
        assert of_jobs.estimates_ms(DEFAULT, work, 1, noise).tolist() == work.tolist()
    one, same, other = (of_jobs.estimates_ms(DEFAULT, work, seed, 0.5) for seed in (1, 1, 2))
    assert one.tolist() == same.tolist() != other.tolist()
    assert one[0] == 0


def test_helios_errors_fall_into_their_bands() -> None:
    work = np.full(50_000, 10**9)
    ratio = of_jobs.estimates_ms(DEFAULT, work, 3, "helios") / work
    assert ratio.min() > 0
    assert ratio.max() <= 101
    # Half of each band is too long: 5, 20, 10, 10 and 5 % of all.
    bands = [float(((ratio > low) & (ratio <= high)).mean()) for low, high in ((1, 1.1), (1.1, 1.5), (1.5, 2), (2, 11))]
    assert bands == pytest.approx([0.05, 0.2, 0.1, 0.1], abs=0.01)
    assert float((ratio > 11).mean()) == pytest.approx(0.05, abs=0.01)
    # Too short by 10 to 100 times: the last band, and 2/11 of the half of the band from 50 to 100 %.
    assert float((ratio < 1 / 11).mean()) == pytest.approx(0.05 + 0.1 * 2 / 11, abs=0.01)


@given(st.floats(0, 5), st.integers(-(2**70), 2**70), st.lists(st.integers(0, 2**62), max_size=20))
def test_estimates_stay_positive_and_far_from_overflow(sigma: float, seed: int, work: list[int]) -> None:
    for noise in (sigma, "helios"):
        found = of_jobs.estimates_ms(DEFAULT, np.array(work, np.int64), seed, noise)
        for truth, estimate in zip(work, found.tolist(), strict=True):
            assert (truth > 0) <= estimate <= max(10**13, truth)


@pytest.mark.parametrize(
    ("noise", "what"), [("oracel", "did you mean 'oracle'"), (-1, "from 0 to 5"), ("nan", "from 0")]
)
def test_a_noise_that_cannot_be_is_one_line(noise: str | float, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        of_jobs.estimates_ms(DEFAULT, np.array([1]), 1, noise)


def test_speeds_on_gpu_models_come_from_the_users_table(tmp_path: Path) -> None:
    models = changed(tmp_path, "[type_speed.ratio.V100]\nP100 = 0.5\n")
    assert speeds.type_speed_ppm(models, "V100", "P100") == 500_000
    assert speeds.type_speed_ppm(models, "P100", "V100") == 2_000_000
    assert speeds.type_speed_ppm(models, "P100", "T4") == PPM
    table = speeds.type_speed_table(models, ["P100", "V100"], ["V100", "P100"])
    assert table.tolist() == [[2_000_000, PPM], [PPM, 500_000], [PPM, PPM]]


def test_deadlines_lie_between_half_and_one_and_a_half_run_times() -> None:
    submit, work = np.arange(1000), np.full(1000, 1000)
    x = (of_jobs.deadlines_ms(DEFAULT, submit, work, 1) - submit) / 1000
    assert 0.5 <= x.min() < 0.55
    assert 1.45 < x.max() <= 1.5


# ---- printing ----


def test_a_result_prints_the_numbers_in_use_with_their_sources(tmp_path: Path, golden: Golden) -> None:
    found = used_assumptions(DEFAULT, ["M9", "M4", "D5"], overhead="helios")
    assert list(found) == ["D5", "M4", "M9"]
    golden(f"{number} {entry['title']}: {entry['value']}" for number, entry in found.items())
    assert "Helios simulator" in found["M9"]["source"]
    assert "Lucid simulator" not in found["M9"]["source"]
    assert "Gavel" not in found["D5"]["source"]
    own = used_assumptions(changed(tmp_path, "[spread]\nlevels.default = 0.2"), ["M4"])
    assert "(1 + 0.2 *" in own["M4"]["value"]
    assert "from own.toml" in own["M4"]["source"]


def test_every_assumption_and_preset_prints_on_one_line() -> None:
    for preset in DEFAULT.overhead.presets:
        for entry in used_assumptions(DEFAULT, DEFAULT.ids, overhead=preset).values():
            assert all(text and text.isprintable() for text in entry.values())
    with pytest.raises(UsageError, match="no assumption has the name 'M44'"):
        used_assumptions(DEFAULT, ["M44"])
    with pytest.raises(UsageError, match="'x' is not an overhead preset"):
        used_assumptions(DEFAULT, ["M9"], overhead="x")


def test_names_of_the_user_cannot_break_the_line(tmp_path: Path, golden: Golden) -> None:
    models = changed(tmp_path, '[memory]\nlevel = "a\\nb"\nlevels."a\\nb" = 0.3')
    entry = used_assumptions(models, ["M2"])["M2"]
    golden(entry["value"])
    assert entry["source"].isprintable()


def test_models_can_be_sent_to_another_process(tmp_path: Path) -> None:
    models = changed(tmp_path, "elastic.sigma = 0.1")
    assert pickle.loads(pickle.dumps(models)) == models
