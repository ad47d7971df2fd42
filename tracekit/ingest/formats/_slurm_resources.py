"""What a row of `sacct` holds: nodes, CPUs, memory and GPUs, from the columns of every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["STATED", "positive", "resources"]

STATED = ("AllocTRES", "ReqTRES", "NodeList")
"""Columns with a twin, such as `AllocTRES stated`, that says whether the cell holds anything."""


def resources(columns: Collection[str], shards_per_gpu: str) -> Iterable[pl.Expr]:
    """Yield the expressions of the resources of each row, for a frame of parsed rows of `sacct`.

    If a TRES list states GPUs, it alone counts; GRES columns and the command count otherwise. An unknown device makes
    `gpus` unknown, and `devices` names it.

    Parameters
    ----------
    columns : collection of str
        The columns that the file has.
    shards_per_gpu : str
        Shards that make a GPU; '' if unknown.

    Yields
    ------
    polars.Expr
        One column each, one value a row: `nodes`, `cpus`, `memory` [GiB], `devices` (names), `gpus` [GPUs], `model`,
        `per_node_gpus` and `asked_gpus` (requested, per node and in all) [GPUs]; and for the checks the booleans
        `has_tres`, `unknown_shares`, `typed_differ` and `gres_by_number`. NULL is unknown.

    Raises
    ------
    ValueError
        `shards_per_gpu` is not a number.
    """
    listed = pl.coalesce("AllocTRES", "ReqTRES").struct
    held, asked_gres = pl.col("AllocGRES").struct, pl.col("ReqGRES").struct
    nodes = pl.coalesce(
        positive("NNodes"), positive("AllocNodes"), listed["nodes"], pl.col("NodeList").list.len().cast(pl.Float64)
    )
    cpus = pl.coalesce(listed["cpus"], *(positive(name) for name in ("AllocCPUS", "NCPUS", "ReqCPUS")))
    asked = pl.col("ReqMem").struct
    per = pl.when(asked["per"] == "c").then(cpus).when(asked["per"] == "n").then(nodes).otherwise(1.0)
    memory = pl.when(asked["gib"] > 0).then(asked["gib"] * per)
    yield nodes.alias("nodes")
    yield cpus.alias("cpus")
    yield pl.coalesce(listed["memory_gib"], memory).alias("memory")
    shares = (listed["shards"] > 0) | (listed["mps"] > 0)
    only_shares = (shares & (listed["gpus"] == 0)).fill_null(value=False)
    fraction = (
        pl.when(listed["shards"] > 0).then(listed["shards"] / float(shards_per_gpu)) if shards_per_gpu else pl.lit(None)
    )
    # slurmctld stores the total in AllocGRES, sbatch asks for each node in ReqGRES; where both are the same on several
    # nodes, both are for each node.
    alike = (held["gpus"] == asked_gres["gpus"]).fill_null(value=False)
    line = pl.col("SubmitLine").struct
    others = pl.coalesce(held["devices"], asked_gres["devices"], line["devices"])
    stated = (listed["gpus"] > 0).fill_null(value=False)
    devices = pl.when(~stated & ~only_shares).then(pl.coalesce(listed["devices"], others))
    gpus = (
        pl.when(stated)
        .then(listed["gpus"])
        .when(only_shares)
        .then(fraction)
        .when(devices.is_not_null())
        .then(None)
        .when(held["gpus"] > 0)
        .then(pl.when(alike).then(held["gpus"] * nodes).otherwise(held["gpus"]))
        .when(asked_gres["gpus"] > 0)
        .then(asked_gres["gpus"] * nodes)
        .when(_unread())
        .then(None)
        .when(
            listed["gpus"].is_not_null()
            | held["gpus"].is_not_null()
            | asked_gres["gpus"].is_not_null()
            | _no_gres(columns)
        )
        .then(0.0)
    )
    yield devices.alias("devices")
    yield gpus.cast(pl.Float64).alias("gpus")
    yield pl.coalesce(listed["model"], held["model"], asked_gres["model"]).alias("model")
    per_node = pl.coalesce(line["per_node"], pl.when(asked_gres["gpus"] > 0).then(asked_gres["gpus"]))
    yield per_node.alias("per_node_gpus")
    yield pl.coalesce(per_node * nodes, line["in_all"]).alias("asked_gpus")
    yield (listed["shards"].is_not_null()).alias("has_tres")
    yield (only_shares & gpus.is_null()).alias("unknown_shares")
    yield listed["typed_differ"].alias("typed_differ")
    numbered = held["by_number"].fill_null(value=False) | asked_gres["by_number"].fill_null(value=False)
    yield (numbered & ~stated).alias("gres_by_number")


def _unread() -> pl.Expr:
    """Return a mask of the rows in which the TRES cell that counts cannot be read."""
    held, asked = (pl.col(f"{name} stated") & pl.col(name).is_null() for name in ("AllocTRES", "ReqTRES"))
    return held | (pl.col("AllocTRES").is_null() & asked)


def _no_gres(columns: Collection[str]) -> pl.Expr:
    """Return a mask of the rows in which an empty GRES cell, of a version without TRES, means 0 GPUs.

    `columns` are those that the file has.
    """
    if {"AllocTRES", "ReqTRES"} & set(columns):
        return pl.lit(value=False)
    asked = pl.lit(value="ReqGRES" in columns) & pl.col("ReqGRES").is_null()
    held = pl.lit(value="AllocGRES" in columns) & pl.col("AllocGRES").is_null() & pl.col("NodeList stated")
    return asked | held


def positive(name: str) -> pl.Expr:
    """Return a count column, NULL for 0: sacct prints 0 for what is not allocated yet."""
    return pl.when(pl.col(name) > 0).then(name)
