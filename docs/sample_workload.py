"""Sample jobs from a workload.json without tracekit: python sample_workload.py workload.json 1000 [seed] > jobs.csv.

Jobs are sampled like those of `tracekit generate`, but without users and VCs, so each job is independent of the
previous one.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import sys
import zoneinfo
from pathlib import Path

import numpy as np
from scipy import stats

model, number = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), int(sys.argv[2])
rng = np.random.default_rng(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
drawn_from = [e for e in model["run_times"] if e["measure"] == "until_end" and not e["vc"]]
fits = {(e["gpu_class"], e["status"]): e for e in drawn_from}
pools = {(e["status"], *e["gpu_classes"]): e for e in model.get("run_time_pools", []) if e["measure"] == "until_end"}


def pick(weights, size):
    """Sample list indices by weight."""
    return rng.choice(len(weights), size, p=np.array(weights) / sum(weights))


def from_family(fit, size):
    """Sample from a family. The parameters of a mixture are numbered by component."""
    named, family = fit["parameters"], getattr(stats, fit["scipy"])
    if "weight_1" not in named:
        return family(**named).rvs(size, random_state=rng)
    part = pick([v for k, v in named.items() if k.startswith("weight_")], size) + 1
    own = {k[:-2] for k in named} - {"weight"}
    return family(**{k: np.array([named[f"{k}_{i}"] for i in part]) for k in own}).rvs(size, random_state=rng)


def shape(entry, size):
    """Sample run times [s] from the entry's distribution."""
    kind = entry.get("drawn_from") or ("family" if entry["chosen"] else "quantiles")
    if kind == "quantiles":
        shares, values = np.transpose(entry["quantiles_s"])
        return np.exp(np.interp(rng.random(size), shares, np.log(np.maximum(values, entry["resolution_s"] / 4))))
    fit = next(f for f in entry["families"] if f["family"] == entry["chosen"])
    drawn = from_family(fit, size)
    if kind == "family+tail":  # use the family below xmin and the power law above it
        tail = entry["tail"]["truncated"]
        while (over := drawn > tail["xmin_s"]).any():
            drawn[over] = from_family(fit, over.sum())
        above = rng.random(size) < tail["share_above"]
        drawn[above] = stats.truncpareto(**tail["parameters"]).rvs(above.sum(), random_state=rng)
    return drawn


def run_times(gpu_class, status, size):
    """Sample run times [s] of jobs with this size class and outcome."""
    keys = [(gpu_class, status), (gpu_class, None), (None, status), (None, None)]
    group = next(fits[k] for k in keys if k in fits)
    ratio = group.get("median_ratio") or 1.0  # a small group uses another group's shape, shifted to its own median
    own = {None: group, "gpu_class": fits.get((group["gpu_class"], None)), "status": fits.get((None, group["status"]))}
    whose = (group.get("pooled_status", group["status"]), *group.get("pooled_classes", []))
    entry = (own | {"neighbours": pools.get(whose)}).get(group["pooled_to"]) or fits[None, None]
    longest, known = max(model["source"]["longest_s"], 1.0), [e for e in (group, entry) if "right_censored" in e]
    if all(e["right_censored"] > 0.01 * e["n"] for e in known):  # longer ones still ran
        longest *= 10
    drawn = ratio * shape(entry, size)
    while (over := drawn > longest).any():
        drawn[over] = ratio * shape(entry, over.sum())
    return np.minimum(np.round(drawn / entry["resolution_s"]) * entry["resolution_s"], longest)


def operational_times(size):
    """Sample batch times from the fitted process, on a clock with one batch per unit of time."""
    known = {"gamma_renewal", "mmpp"}  # otherwise use the best-fitting process of these, or Poisson
    fitted = [c for c in model["arrivals"]["candidates"] if c["process"] in known]
    fitted.sort(key=lambda c: (c["process"] != model["arrivals"]["process"], c["bic"]))
    if model["arrivals"]["process"] == "poisson" or not fitted:
        return rng.exponential(size=size).cumsum()
    p = fitted[0]["parameters"]
    if fitted[0]["process"] == "gamma_renewal":  # sample gamma gaps above `least`
        gaps = stats.gamma(p["a"], scale=p["scale"])
        above = gaps.sf(p["least"])
        mean = gaps.mean() * stats.gamma(p["a"] + 1, scale=p["scale"]).sf(p["least"]) / above
        return (gaps.isf(rng.random(size) * above) / mean).cumsum()
    rates, leaves = (p["quiet_rate"], p["busy_rate"]), (p["to_busy"], p["to_quiet"])
    share = leaves[0] / sum(leaves)  # of the time that is busy
    state, now, times = int(rng.random() < share), 0.0, []
    while len(times) < size:
        stay = rng.exponential(1 / leaves[state])
        times += (now + np.sort(rng.random(rng.poisson(rates[state] * stay)) * stay)).tolist()
        state, now = 1 - state, now + stay
    return np.array(times[:size]) * (rates[0] * (1 - share) + rates[1] * share)


arrivals = model["arrivals"]
rate, batch, zone = arrivals["rate"], arrivals["batch"], zoneinfo.ZoneInfo(arrivals["timezone"])
sizes = np.array(batch["sizes"])[pick(batch["shares"], number)]
times = operational_times(number)
hour = arrivals["start"] // 3600 * 3600
clock, expected = [arrivals["start"]], [0.0]
while expected[-1] < times[-1]:  # expected batches up to the end of each hour, at the mean rate of the log
    local = dt.datetime.fromtimestamp(hour, zone)
    factor = rate["profile"][(24 * local.weekday() + local.hour) % len(rate["profile"])]
    hour += 3600
    expected.append(expected[-1] + rate.get("mean_per_hour", rate["per_hour"]) * factor * (hour - clock[-1]) / 3600)
    clock.append(hour)
seconds = np.floor(np.interp(times, expected, clock) / arrivals["step_s"]) * arrivals["step_s"]
submit = np.repeat(seconds, sizes)[:number] - arrivals["start"]
requests, groups = model["sizes"]["requests"], model["statuses"]["groups"]
asked, status, run_s = pick([r["share"] for r in requests], number), np.empty(number, int), np.full(number, np.nan)
for gpu_class in dict.fromkeys(r["gpu_class"] for r in requests):
    mine = np.flatnonzero([requests[i]["gpu_class"] == gpu_class for i in asked])
    ends = [i for i, g in enumerate(groups) if g["gpu_class"] == gpu_class] or list(range(len(groups)))
    status[mine] = np.array(ends)[pick([groups[i]["jobs"] for i in ends], mine.size)]
    for i in ends:
        ran = mine[(status[mine] == i) & (rng.random(mine.size) >= groups[i]["no_run_time_share"])]
        run_s[ran] = run_times(gpu_class, groups[i]["status"], ran.size)
out = csv.writer(sys.stdout)
out.writerow(["submit_s", "gpus", "status", "run_s"])  # submit_s counts from the first submission of the log
for second, i, j, held in zip(submit, asked, status, run_s, strict=True):
    out.writerow([int(second), requests[i]["gpu_count"], groups[j]["status"], "" if np.isnan(held) else f"{held:.10g}"])
