"""The tenant: the job column that distinguishes teams, with the site's word for it.

The user chooses the tenant of an analysis. If a Trace is opened `by` a column, `vc` in its SQL is that column. Answers
use the column's own name, and questions the site's word (`Answer.of`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

INGESTED = "vc"
"""The column that ingest fills with the unit by which the source (or an option) divides jobs."""

DIMENSIONS = (INGESTED, "account", "partition", "qos", "gpu_model", "user")
"""Job columns that can be the tenant."""

_MARK = re.compile(r"\{tenant\.((?i:one|many|a|by|spelled_many|spelled))\}")


@dataclass(frozen=True)
class Tenant:
    """A column that distinguishes teams, with the words for it.

    Examples
    --------
    >>> Tenant("account", "account", "accounts").fill("Does {tenant.a} wait? {tenant.Many} share nodes.")
    'Does an account wait? Accounts share nodes.'
    """

    column: str
    """Of jobs."""
    one: str
    """The site's word for one tenant."""
    many: str
    full: str = ""
    """The full word for one tenant if `one` is short for it."""

    @property
    def a(self) -> str:
        """The singular with its article, such as 'an account'."""
        return f"{_article(self.one)} {self.one}"

    @property
    def spelled(self) -> str:
        """The word for one tenant where it is first used."""
        return self.full or self.one

    @property
    def spelled_many(self) -> str:
        """The word for several tenants where it is first used."""
        return f"{self.full}s" if self.full else self.many

    @property
    def by(self) -> str:
        """The phrase for grouping, such as 'by account'."""
        return f"by {self.spelled}"

    @property
    def metric(self) -> str:
        """Name of the metric in overview/summary that counts the tenants, such as 'gpu_models'."""
        return "vcs" if self.column == INGESTED else self.many.replace(" ", "_").lower()

    @property
    def head(self) -> str:
        """Heading of the column: the site's word if there is one."""
        return self.one if self.one != VC.one else INGESTED

    def fill(self, text: str) -> str:
        """Replace marks such as {tenant.one} in one of tracekit's templates with the words.

        A mark names an attribute. If the mark begins with a capital letter, so does the word. Fill a template before
        adding names from a log, which may look like marks.
        """
        return _MARK.sub(self._word, text)

    def named(self, frame: pl.DataFrame, *, own_column: bool = False) -> pl.DataFrame:
        """Return rows in which the `vc` column and the metric that counts tenants are named after the tenant.

        If the rows already have the tenant column, such as a job's user, `vc` would repeat it and is dropped unless
        `own_column` is set.
        """
        if self.column == INGESTED:
            return frame
        import polars as pl

        if INGESTED in frame.columns:
            if self.column not in frame.columns:
                frame = frame.rename({INGESTED: self.column})
            elif not own_column:
                frame = frame.drop(INGESTED)
        if {"metric", "unit"}.issubset(frame.columns):
            counts = pl.col("metric") == VC.metric
            frame = frame.with_columns(
                metric=pl.when(counts).then(pl.lit(self.metric)).otherwise("metric"),
                unit=pl.when(counts).then(pl.lit(self.many)).otherwise("unit"),
            )
        return frame

    def _word(self, mark: re.Match[str]) -> str:
        word = str(getattr(self, mark[1].lower()))
        return word[:1].upper() + word[1:] if mark[1][0].isupper() else word


def _article(word: str) -> str:
    """Return 'a' or 'an'. No word here that begins with u starts with a vowel sound."""
    return "an" if word[:1].lower() in "aeio" else "a"


VC = Tenant(INGESTED, "VC", "VCs", "virtual cluster")

_WORDS: Mapping[str, tuple[str, str]] = {
    "account": ("account", "accounts"),
    "partition": ("partition", "partitions"),
    "qos": ("QOS", "QOSes"),
    "gpu_model": ("GPU model", "GPU models"),
    "user": ("user", "users"),
    "queue": ("queue", "queues"),
    "namespace": ("namespace", "namespaces"),
    "group": ("group", "groups"),
    "project": ("project", "projects"),
    "team": ("team", "teams"),
    "organization": ("organization", "organizations"),
    "department": ("department", "departments"),
    "pool": ("pool", "pools"),
}
"""Singular and plural words, by column name."""

_OF_FORMAT = {
    "slurm": "account",
    "swf": "queue",
    "alibaba-spot": "organization",
    "pbs": "queue",
    "openpbs": "queue",
    "torque": "queue",
    "lsf": "queue",
    "flux": "bank",
    "kubernetes": "namespace",
    "kubectl": "namespace",
    "kueue": "queue",
}
"""The unit that each format puts in `vc` unless one of its options changes it."""

_CHOOSING = ("vc", "tenant")
"""Format options that choose the unit in `vc`."""


def tenant_of(format_name: str, options: Mapping[str, str], column: str = INGESTED) -> Tenant:
    """Return the tenant of a Trace, with the site's words.

    Parameters
    ----------
    format_name : str
        Source format, which determines the word for the ingested unit.
    options : mapping
        Options of the ingest.
    column : str
        The job column that is the tenant.
    """
    named = column
    if column == INGESTED:
        chosen = (options[name].lower() for name in _CHOOSING if options.get(name))
        named = next((word for word in chosen if word in _WORDS), _OF_FORMAT.get(format_name, ""))
    if named not in _WORDS:
        return VC
    return Tenant(column, *_WORDS[named])
