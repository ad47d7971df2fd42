"""The tenant: the job column that distinguishes teams, and the site's word for it.

You choose the tenant for an analysis. A Trace opened `by` a column has that column in place of `vc`, so all later steps
(views, timelines, queries, guidelines, pages) use `vc` and show the site's own word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

INGESTED = "vc"
"""The column that ingest fills: the unit by which the source divides the cluster, or the unit set by an option."""

DIMENSIONS = (INGESTED, "account", "partition", "qos", "gpu_model", "user")
"""Job columns that can be the tenant."""

_TEXT = re.compile(
    r"(?P<start>^|[.?!:]\s+|\n)?(?:\b(?P<article>[Aa]n?) )?"
    r"\b(?P<unit>(?P<capital>[Vv])irtual clusters?(?: \(VCs?\))?|VCs?)\b"
)

_OF_LOG = frozenset({"rows", "trace", "cluster", "clusters", "others", "without_effects", "examples"})
"""Keys of documents whose values contain names from the log, which may be any words."""


@dataclass(frozen=True)
class Tenant:
    """A column that distinguishes teams, with its words.

    Examples
    --------
    >>> Tenant("account", "account", "accounts").words("Does a VC wait? VCs share nodes.")
    'Does an account wait? Accounts share nodes.'
    """

    column: str
    """Of jobs."""
    one: str
    """The site's word for one tenant."""
    many: str
    full: str = ""
    """The full word for one tenant, if `one` is an abbreviation."""

    @property
    def a(self) -> str:
        """The singular with its article, such as 'an account'."""
        return f"{_article(self.one)} {self.one}"

    @property
    def spelled(self) -> str:
        """The word for one tenant at its first use in a text."""
        return self.full or self.one

    @property
    def spelled_many(self) -> str:
        """The word for several tenants at its first use in a text."""
        return f"{self.full}s" if self.full else self.many

    @property
    def by(self) -> str:
        """The phrase for grouping, such as 'by account'."""
        return f"by {self.spelled}"

    @property
    def metric(self) -> str:
        """Name of the number of tenants in a table, such as 'gpu_models'."""
        return self.many.replace(" ", "_").lower()

    @property
    def head(self) -> str:
        """Heading of the column `vc`: the site's word, if it has one."""
        return self.one if self.one != VC.one else INGESTED

    def words(self, text: str) -> str:
        """Return tracekit's own text, in which tenants are called VCs, with the site's word instead.

        Do not pass text from a log, because it may contain the word itself.
        """
        if self.one == VC.one:
            return text
        return _TEXT.sub(self._word, text)

    def sql(self, text: str) -> str:
        """Return SQL for readers, with the site's word in comments and units; column names stay."""
        if self.one == VC.one:
            return text
        head = f"-- Here jobs.vc is jobs.{self.column}.\n" if self.column != INGESTED else ""
        return head + "\n".join(self.words(line) for line in text.split("\n"))

    def document(self, value: Any) -> Any:
        """Return JSON values with the site's word in all of tracekit's own text; names from the log stay."""
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
    """Return 'a' or 'an'; none of these words that begins with u starts with a vowel sound."""
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
"""What each format puts in `vc`, unless one of its options changes it."""

_CHOOSING = ("vc", "tenant")
"""Format options that set what goes into `vc`."""


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
