"""The page on the papers names queries that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tracekit.characterize import list_queries

PAGE = Path(__file__).parent.parent / "docs" / "papers.md"


def test_every_query_named_exists_and_every_parameter_too() -> None:
    text = PAGE.read_text(encoding="utf-8")
    queries = {query.name: query for query in list_queries()}
    named = set(re.findall(r"`([a-z]+/[a-z_]+)`", text))
    assert len(named) > 20
    assert named <= set(queries)
    params = {param.name for query in queries.values() for param in query.params}
    given = set(re.findall(r"`([a-z_]+)=\w+`", text)) - {"unit"}
    assert given <= params


def test_every_query_that_names_a_study_stands_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    without = {query.name for query in list_queries() if f"`{query.name}`" not in text and query.paper != "none"}
    assert without == {"failures/by_user"}, "add it to docs/papers.md, or say 'paper: none' in its header"
