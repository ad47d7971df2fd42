"""Find targets: the modules of tracekit.export.targets, then installed plug-ins."""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from pkgutil import iter_modules

from tracekit.errors import UsageError, nearest
from tracekit.export.interface import Target

_GROUP = "tracekit.exports"


def all_targets() -> dict[str, Target]:
    """Return every target by name, those of this package before plug-ins of the same name."""
    return dict(_known()[0])


def broken_plugins() -> dict[str, str]:
    """Return one line for each installed plug-in that cannot be used, by the name of its entry point."""
    return dict(_known()[1])


def find_target(name: str) -> Target:
    """Return the target called `name`.

    Raises
    ------
    UsageError
        There is none of that name.
    """
    known = all_targets()
    if name not in known:
        raise UsageError(f"unknown target '{name[:60]}'", where="--to", hint=nearest(name[:80], known))
    return known[name]


@cache
def _known() -> tuple[dict[str, Target], dict[str, str]]:
    from tracekit.export import targets

    known: dict[str, Target] = {}
    for info in iter_modules(targets.__path__):
        if not info.name.startswith("_"):
            member: Target = import_module(f"{targets.__name__}.{info.name}").TARGET
            known[member.name] = member
    broken: dict[str, str] = {}
    for entry in sorted(metadata.entry_points(group=_GROUP), key=lambda e: (e.name, e.value)):
        found, fault = _plugin(entry)
        if found is not None and found.name in known:
            fault = f"there is already a target called '{found.name}'"
        if found is None or fault:
            broken[entry.name] = f"the export plug-in {entry.name} ({entry.value}) cannot be used: {fault}"
        else:
            known[found.name] = found
    return dict(sorted(known.items())), broken


def _plugin(entry: metadata.EntryPoint) -> tuple[Target | None, str]:
    """Return the target that an entry point names, or why it cannot be used."""
    try:
        member = entry.load()
    except Exception as error:  # noqa: BLE001 -- a plug-in may do anything
        return None, " ".join(f"{type(error).__name__}: {error}".split())
    if not isinstance(member, Target):
        return None, "it is not an instance of tracekit.export.interface.Target"
    return member, ""
