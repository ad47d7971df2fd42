"""Addresses of jobs, nodes and users, where a server shows the page (`tracekit serve`)."""

from __future__ import annotations

from urllib.parse import quote

__all__ = ["OPENED", "link_to"]

OPENED = {"job_id": "job", "node_id": "node", "user": "user"}
"""What can be opened, by the column that names it."""

_LONGEST = 2000
"""Most letters of an address; servers refuse longer ones."""


def link_to(kind: str, name: object) -> str | None:
    """Return the address of a job, node or user; None where there is none.

    Browsers change a path with '..' or '//' in it, even where these are quoted: such a name follows a question mark.

    Examples
    --------
    >>> link_to("job", "j 1"), link_to("user", ".."), link_to("node", None)
    ('/job/j%201', '/user?name=..', None)
    """
    if not isinstance(name, str):
        return None
    quoted = quote(name, safe="", errors="replace")
    if len(quoted) > _LONGEST:
        return None
    awkward = not name or name.startswith(".") or "/" in name or "\\" in name
    return f"/{kind}?name={quoted}" if awkward else f"/{kind}/{quoted}"
