"""Draw jobs from a workload.json without tracekit: python sample_workload.py workload.json 1000 > jobs.csv."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
from scipy import stats

model, number, rng = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2]), np.random.default_rng(0)
fits = {(e["gpu_class"], e["status"]): e for e in model["run_times"] if e["measure"] == "until_end" and not e["vc"]}
pools = {(e["status"], *e["gpu_classes"]): e for e in model.get("run_time_pools", []) if e["measure"] == "until_end"}


def pick(items, weights):
    """Draw one of the items by its weight."""
    return items[rng.choice(len(items), p=np.array(weights) / sum(weights))]


def duration(size, status):
    """Draw a run time [s] of a job of this size that ends so."""
    entry = fits.get((size, status)) or fits.get((size, None)) or fits[None, None]
    ratio = entry.get("median_ratio") or 1.0  # a small group takes another's shape, moved to its own median
    shape = {None: entry, "gpu_class": fits.get((size, None)), "status": fits.get((None, status))}
    shape["neighbours"] = pools.get((entry["status"], *entry.get("pooled_classes", [])))
    entry = shape.get(entry["pooled_to"]) or fits[None, None]
    if (entry.get("drawn_from") or "quantiles") == "quantiles" and entry["quantiles_s"]:
        return ratio * np.interp(rng.random(), *np.transpose(entry["quantiles_s"]))
    p = next(f for f in entry["families"] if f["family"] == entry["chosen"])
    parts = {k[7:]: w for k, w in p["parameters"].items() if k.startswith("weight_")}
    end = "_" + pick(list(parts), list(parts.values())) if parts else ""
    named = {k.removesuffix(end): v for k, v in p["parameters"].items() if k.endswith(end) and k[:6] != "weight"}
    return min(ratio * getattr(stats, p["scipy"])(**named).rvs(random_state=rng), model["source"]["longest_s"])


arrivals, rows, hour = model["arrivals"], [], 0
while len(rows) < number:  # a Poisson process at the mean rate: bursts and time zone are left out
    profile, batch = arrivals["rate"]["profile"], arrivals["batch"]
    at = (arrivals["start"] // 3600 + hour - 96) % 168  # 1970 began on a Thursday, 96 hours before a Monday
    for _ in range(rng.poisson(arrivals["rate"]["mean_per_hour"] * profile[at % len(profile)])):
        second = round(3600 * (hour + rng.random()))
        for _ in range(pick(batch["sizes"], batch["shares"])):
            asked = pick(model["sizes"]["requests"], [r["share"] for r in model["sizes"]["requests"]])
            ends = [g for g in model["statuses"]["groups"] if g["gpu_class"] == asked["gpu_class"]]
            status = pick(ends, [g["jobs"] for g in ends])["status"]
            rows.append([second, asked["gpu_count"], status, round(duration(asked["gpu_class"], status))])
    hour += 1
csv.writer(sys.stdout).writerows([["submit_s", "gpus", "status", "run_s"], *sorted(rows)[:number]])
