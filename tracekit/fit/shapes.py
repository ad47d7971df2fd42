"""Count the shares of requests, tenants and machines, which are not fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy import special

from tracekit.fit.jobs import CLASSES
from tracekit.fit.run_times import LEAST_JOBS

if TYPE_CHECKING:
    from tracekit.array_types import Floats
    from tracekit.trace import Trace


MOST_REQUESTS = 500
"""Maximum number of distinct requests listed. Rarer ones are omitted, with their share."""
SCORE_LEVELS = (-3.0, -2.5, -2.0, -1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0)
"""Normal scores at which the quantiles of a VC's scores are given."""
MOST_TENANTS = 2_000
"""Maximum number of (user, VC) pairs that are listed; the other pairs share the remainder equally."""


def fit_sizes(jobs: pl.DataFrame) -> dict[str, Any]:
    """Return the requests that occur, with their shares, and the share of each size class."""
    keys = ["gpu_class", "gpu_count", "node_count", "instance_count"]
    counted = (
        jobs.group_by(keys)
        .agg(pl.len().alias("jobs"), pl.col("cpu_count").median(), pl.col("memory_gib").median())
        .with_columns(pl.col("gpu_class").cast(pl.String))
        .sort(["jobs", *keys[1:]], descending=[True, False, False, False], nulls_last=True)
    )
    kept = counted.head(MOST_REQUESTS)
    total = int(counted["jobs"].sum())
    by_class = {str(r["gpu_class"]): r["jobs"] for r in counted.group_by("gpu_class").agg(pl.sum("jobs")).to_dicts()}
    fractional = jobs["gpu_count"].is_between(0, 1, closed="none").sum()
    known = jobs["gpu_count"].drop_nulls()
    gangs = jobs["instance_count"].drop_nulls()
    return {
        "jobs": total,
        "unknown": int(jobs["gpu_count"].null_count()),
        "by_gpu_class": {c: by_class.get(c, 0) / total for c in CLASSES},
        "mean_gpus": None if known.is_empty() else float(np.mean(known.to_numpy())),
        "fractional_share": None if known.is_empty() else int(fractional) / known.len(),
        "gang_share": None if gangs.is_empty() else int((gangs > 1).sum()) / gangs.len(),
        "requests": [
            {**{k: row[k] for k in (*keys, "cpu_count", "memory_gib")}, "share": row["jobs"] / total}
            for row in kept.iter_rows(named=True)
        ],
        "left_out_requests": counted.height - kept.height,
        "left_out_share": 1 - int(kept["jobs"].sum()) / total,
    }


def fit_users(jobs: pl.DataFrame) -> dict[str, Any]:
    """Return the shares of tenants (each a user in a VC), and the concentration over users and over VCs.

    Users are renamed to u1, u2, ... in order of their number of jobs, because a model contains no user names. Clusters
    and VCs keep their names.
    """
    names = (
        jobs.filter(pl.col("user").is_not_null())
        .group_by(pl.col("user").cast(pl.String))
        .len()
        .sort(["len", "user"], descending=[True, False])
        .with_row_index("rank", 1)
        .select("user", pl.format("u{}", "rank").alias("name"))
    )
    counted = (
        jobs.group_by(pl.col("user").cast(pl.String), pl.col("cluster").cast(pl.String), pl.col("vc").cast(pl.String))
        .agg(pl.len().alias("jobs"), *((pl.col("gpu_class") == c).sum().alias(f"class {c}") for c in CLASSES))
        .join(names, on="user", how="left")
        .sort(["jobs", "user", "cluster", "vc"], descending=[True, False, False, False], nulls_last=True)
    )
    total = int(counted["jobs"].sum())
    kept, rest = counted.head(MOST_TENANTS), counted.slice(MOST_TENANTS)
    tenants = [
        {
            "user": row["name"],
            "cluster": row["cluster"],
            "vc": row["vc"],
            "share": row["jobs"] / total,
            "gpu_class_shares": [row[f"class {c}"] / row["jobs"] for c in CLASSES],
        }
        for row in kept.iter_rows(named=True)
    ]
    return {
        "users": names.height,
        "vcs": jobs.select("cluster", "vc").filter(pl.col("vc").is_not_null()).n_unique(),
        "user_concentration": _concentration(jobs["user"]),
        "vc_concentration": _concentration(jobs["vc"]),
        "gpu_classes": list(CLASSES),
        "tenants": tenants,
        "other_tenants": rest.height,
        "other_share": int(rest["jobs"].sum()) / total,
    }


def _concentration(values: pl.Series) -> dict[str, float] | None:
    """Return the largest 1, 5 and 10 %'s shares of the jobs, the Gini coefficient and the Zipf exponent."""
    counts = np.sort(values.drop_nulls().cast(pl.String).value_counts()["count"].to_numpy().astype(float))[::-1]
    if not counts.size:
        return None
    total, size = counts.sum(), counts.size

    def top(share: float) -> float:
        return float(counts[: max(1, round(share * size))].sum() / total)

    ranks = np.arange(1, size + 1)
    gini = float((size + 1 - 2 * (counts.cumsum() / total).sum()) / size * -1) if size > 1 else 0.0
    return {"top_1_pct_share": top(0.01), "top_5_pct_share": top(0.05), "top_10_pct_share": top(0.1), "gini": gini} | (
        {"zipf_exponent": _zipf(counts, np.log(ranks))} if size > 1 else {}
    )


def _zipf(counts: Floats, logs: Floats) -> float:
    """Return the most likely exponent of shares that fall as rank ** -exponent over these ranks."""
    exponent = 1.0
    mean = float(counts @ logs / counts.sum())
    for _ in range(100):
        weight = np.exp(-exponent * logs)
        weight /= weight.sum()
        here = float(weight @ logs)
        step = (here - mean) / max(float(weight @ logs**2) - here**2, 1e-12)
        exponent = float(np.clip(exponent + np.clip(step, -1, 1), 0, 20))
        if abs(step) < 1e-10:
            break
    return exponent


def fit_correlation(jobs: pl.DataFrame) -> dict[str, Any]:
    """Return the differences in run times between VCs, and the correlation of a user's successive run times.

    Each run time is replaced by its normal score among jobs of the same size class and status. For each VC with at
    least 200 such jobs, the quantiles of the scores show whether its jobs run longer or shorter than other jobs of the
    same class and status. Successive jobs are compared by their scores within such a VC, so that using the same VC or
    submitting the same kind of job does not count as correlation.
    """
    known = jobs.filter(pl.col("held_s").is_not_null() & pl.col("known")).select(
        "held_s", "gpu_class", "status", "user", "cluster", "vc"
    )
    if known.is_empty():
        return {
            "pairs": 0,
            "correlation": None,
            "reason": "no job has a run time",
            "levels": list(SCORE_LEVELS),
            "vcs": [],
        }
    scores = _scores(known, known["held_s"].to_numpy(), ("gpu_class", "status"))
    large = (pl.len().over("cluster", "vc") >= LEAST_JOBS) & pl.col("vc").is_not_null()
    sizes = known.drop("held_s").with_columns(score=pl.Series(scores), large=large)
    vcs = []
    at = special.ndtr(np.array(SCORE_LEVELS))
    for key, part in sizes.filter("large").group_by("cluster", "vc"):
        cluster, vc = (None if k is None else str(k) for k in key)
        quantiles = np.quantile(part["score"].to_numpy(), at, method="median_unbiased")
        vcs.append({"cluster": cluster, "vc": vc, "jobs": part.height, "scores": quantiles.tolist()})
    vcs.sort(key=lambda v: (str(v["cluster"] or ""), str(v["vc"])))
    found: dict[str, Any] = {"levels": list(SCORE_LEVELS), "vcs": vcs}
    if vcs:
        within = _scores(sizes, scores, ("cluster", "vc"))
        sizes = sizes.with_columns(score=pl.when("large").then(pl.Series(within)).otherwise("score"))
    owned = sizes.filter(pl.col("user").is_not_null())
    pairs = owned.select("score", pl.col("score").shift(1).over("user").alias("before")).drop_nulls()
    if pairs.height < 20:
        return {"pairs": pairs.height, "correlation": None, "reason": "fewer than 20 pairs of successive jobs", **found}
    now, before = pairs["score"].to_numpy(), pairs["before"].to_numpy()
    spread = float(now.std() * before.std())
    if spread < 1e-9:
        return {"pairs": pairs.height, "correlation": None, "reason": "all run times are the same", **found}
    value = float(((now - now.mean()) * (before - before.mean())).mean() / spread)
    return {"pairs": pairs.height, "correlation": value, **found}


def job_scores(jobs: pl.DataFrame) -> Floats:
    """Return the normal score of each job's run time within size class, status and large VC, or NaN without a run time.

    `fit_correlation` returns the correlation of these scores.
    """
    known = (jobs["held_s"].is_not_null() & jobs["known"]).to_numpy()
    found = np.full(jobs.height, np.nan)
    if known.any():
        taken = jobs.filter(pl.Series(known))
        scores = _scores(taken, taken["held_s"].to_numpy(), ("gpu_class", "status"))
        large = taken.select((pl.len().over("cluster", "vc") >= LEAST_JOBS) & pl.col("vc").is_not_null())[:, 0]
        within = _scores(taken, scores, ("cluster", "vc"))
        found[known] = np.where(large.to_numpy(), within, scores)
    return found


def _scores(jobs: pl.DataFrame, values: Floats, groups: tuple[str, ...]) -> Floats:
    """Return the normal score of each value within its group, with equal values in random order.

    Otherwise many equal values, such as run times of 0 s, would share one score that no drawn job has.
    """
    code = jobs.select(pl.struct(groups).rank("dense"))[:, 0].to_numpy().astype(np.int64)
    order = np.lexsort((np.random.default_rng(values.size).random(values.size), values, code))
    starts = np.flatnonzero(np.diff(code[order], prepend=0))
    lengths = np.diff(np.append(starts, values.size))
    rank = np.arange(values.size) - np.repeat(starts, lengths) + 1
    found = np.empty(values.size)
    found[order] = special.ndtri(rank / (np.repeat(lengths, lengths) + 1))
    return found


def fit_cluster(trace: Trace) -> dict[str, Any]:
    """Return the machines by kind and the last quota of each VC [GPUs]."""
    nodes: list[dict[str, Any]] = []
    capacity: list[dict[str, Any]] = []
    keys = ["cluster", "vc", "gpu_count", "gpu_model", "gpu_memory_gib", "cpu_count", "memory_gib"]
    if trace.has("nodes"):
        counted = trace.scan("nodes").group_by(keys).agg(pl.len().cast(pl.Int64).alias("nodes"))
        nodes = counted.sort(keys, nulls_last=True).collect().to_dicts()
    if trace.has("capacity"):
        last = trace.scan("capacity").sort("time").group_by("cluster", "vc").agg(pl.col("gpu_count").last())
        known = last.filter(pl.col("gpu_count").is_not_null())
        capacity = known.sort("cluster", "vc", nulls_last=True).collect().to_dicts()
    return {"nodes": nodes, "capacity": capacity}
