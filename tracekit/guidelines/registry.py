"""Find guidelines: the modules of tracekit.guidelines.rules, then installed plug-ins."""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from pkgutil import iter_modules

from tracekit.errors import UsageError, nearest
from tracekit.guidelines.interface import Guideline

_GROUP = "tracekit.guidelines"


def all_guidelines() -> dict[str, Guideline]:
    """Return every guideline by id, those of this package before plug-ins of the same id."""
    return dict(_known()[0])


def broken_plugins() -> dict[str, str]:
    """Return the fault of each installed plug-in that cannot be used, one line, by its entry point's name."""
    return dict(_known()[1])


def find_guideline(name: str) -> Guideline:
    """Return the guideline called `name`.

    Raises
    ------
    UsageError
        No guideline has that id.
    """
    known = all_guidelines()
    if name not in known:
        raise UsageError(f"unknown guideline '{name[:60]}'", where="--only", hint=nearest(name[:80], known))
    return known[name]


@cache
def _known() -> tuple[dict[str, Guideline], dict[str, str]]:
    from tracekit.guidelines import rules

    known: dict[str, Guideline] = {}
    for info in iter_modules(rules.__path__):
        if not info.name.startswith("_"):
            member: Guideline = import_module(f"{rules.__name__}.{info.name}").GUIDELINE
            if member.id in known:
                raise ValueError(f"two guidelines have the id '{member.id}'")
            known[member.id] = member
    broken: dict[str, str] = {}
    for entry in sorted(metadata.entry_points(group=_GROUP), key=lambda e: (e.name, e.value)):
        found, fault = _plugin(entry)
        if found is not None and found.id in known:
            fault = f"there is already a guideline called '{found.id}'"
        if found is None or fault:
            broken[entry.name] = f"the guideline plug-in {entry.name} ({entry.value}) cannot be used: {fault}"
        else:
            known[found.id] = found
    return dict(sorted(known.items())), broken


def _plugin(entry: metadata.EntryPoint) -> tuple[Guideline | None, str]:
    """Return the guideline that an entry point names, or why it cannot be used."""
    try:
        member = entry.load()
    except Exception as error:  # noqa: BLE001 -- a plug-in may do anything
        return None, " ".join(f"{type(error).__name__}: {error}".split())
    if not isinstance(member, Guideline):
        return None, "it is not an instance of tracekit.guidelines.interface.Guideline"
    return member, ""
