"""The tenant: which column of the jobs tells teams apart, and what the site calls it.

The choice is made at analysis. A Trace that was opened `by` a column has that column in the place of `vc`, so that all
that follows - views, timelines, queries, guidelines, pages - asks for `vc` and says the site's own word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

INGESTED = "vc"
"""The column that an ingest fills: the unit by which the source itself divides the cluster, or what an option says."""

DIMENSIONS = (INGESTED, "account", "partition", "qos", "gpu_model", "user")
"""Columns of jobs that can be the tenant."""

_TEXT = re.compile(
    r"(?P<start>^|[.?!:]\s+|\n)?(?:\b(?P<article>[Aa]n?) )?"
    r"\b(?P<unit>(?P<capital>[Vv])irtual clusters?(?: \(VCs?\))?|VCs?)\b"
)

_OF_LOG = frozenset({"rows", "trace", "cluster", "clusters", "others", "without_effects", "examples"})
"""Keys of documents below which names of the log stand, which may be any words."""


@dataclass(frozen=True)
class Tenant:
    """A column that tells teams apart, in words.

    Examples
    --------
    >>> Tenant("account", "account", "accounts").words("Does a VC wait? VCs share nodes.")
    'Does an account wait? Accounts share nodes.'
    """

    column: str
    """Of jobs."""
    one: str
    """The site's word for one of them."""
    many: str
    full: str = ""
    """The word for one spelled out, where `one` is short for it."""

    @property
    def a(self) -> str:
        """Such as 'an account'."""
        return f"{_article(self.one)} {self.one}"

    @property
    def spelled(self) -> str:
        """The word for one where a reader meets it first."""
        return self.full or self.one

    @property
    def spelled_many(self) -> str:
        """The word for several where a reader meets it first."""
        return f"{self.full}s" if self.full else self.many

    @property
    def by(self) -> str:
        """Such as 'by account'."""
        return f"by {self.spelled}"

    @property
    def metric(self) -> str:
        """What the number of them is called in a table, such as 'gpu_models'."""
        return self.many.replace(" ", "_").lower()

    @property
    def head(self) -> str:
        """The heading of the column `vc`: the site's word, where it has one."""
        return self.one if self.one != VC.one else INGESTED

    def words(self, text: str) -> str:
        """Return a text of tracekit's own, in which tenants are called VCs, in the site's word.

        Text from a log must not pass: it may hold the word itself.
        """
        if self.one == VC.one:
            return text
        return _TEXT.sub(self._word, text)

    def sql(self, text: str) -> str:
        """Return SQL for people, its comments and units in the site's word; names of columns stay."""
        if self.one == VC.one:
            return text
        head = f"-- Here jobs.vc is jobs.{self.column}.\n" if self.column != INGESTED else ""
        return head + "\n".join(self.words(line) for line in text.split("\n"))

    def document(self, value: Any) -> Any:
        """Return JSON values with each text of tracekit's own in the site's word; names of the log stay."""
        if self.one == VC.one:
            return value
        if isinstance(value, str):
            return self.words(value)
        if isinstance(value, list):
            return [self.document(one) for one in value]
        if isinstance(value, dict):
            return {key: one if key in _OF_LOG else self.document(one) for key, one in value.items()}
        return value

    def _word(self, found: re.Match[str]) -> str:
        plural = found["unit"].rstrip(")").endswith("s")
        word = self.many if plural else self.one
        start, article = found["start"], found["article"]
        if article:
            return f"{start or ''}{'A' if article[0] == 'A' else 'a'}{_article(self.one)[1:]} {word}"
        first = start is not None and not start.startswith(":")
        return (start or "") + (word[:1].upper() + word[1:] if first or found["capital"] == "V" else word)


def _article(word: str) -> str:
    """Return 'a' or 'an'; of these words none that begins with a u sounds like a vowel."""
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
"""The words for one and for several, by the name of a column."""

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
"""What formats fill `vc` with, where none of their options says something else."""

_CHOOSING = ("vc", "tenant")
"""Options of formats that name what fills `vc`."""


def tenant_of(format_name: str, options: Mapping[str, str], column: str = INGESTED) -> Tenant:
    """Return the tenant of a Trace, in the site's words.

    Parameters
    ----------
    format_name : str
        The source format, by which the unit that was ingested is called.
    options : mapping
        Those of the ingest.
    column : str
        The column of jobs that is the tenant.
    """
    named = column
    if column == INGESTED:
        chosen = (options[name].lower() for name in _CHOOSING if options.get(name))
        named = next((word for word in chosen if word in _WORDS), _OF_FORMAT.get(format_name, ""))
    if named not in _WORDS:
        return VC
    return Tenant(column, *_WORDS[named])
