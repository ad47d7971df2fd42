"""Find the members of a kind by name, in a package's modules and in installed plug-ins."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module, metadata
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tracekit.errors import UsageError, nearest

if TYPE_CHECKING:
    from types import ModuleType

T = TypeVar("T")


def modules(package: str) -> list[ModuleType]:
    """Return a package's modules in alphabetical order, except shared ones, whose names begin with _."""
    names = [info.name for info in iter_modules(import_module(package).__path__)]
    return [import_module(f"{package}.{name}") for name in names if not name.startswith("_")]


class Plugins(Generic[T]):
    """The members of a kind, sorted by name.

    A plug-in is skipped if it cannot be loaded, has the wrong type, or has another member's name.

    Parameters
    ----------
    kind : type
        Class of every member.
    package : str
        The package whose modules list their members in the tuple `MEMBERS`.
    group : str
        The entry-point group of plug-ins.
    noun, plugin : str
        Words for a member and for the kind of plug-in in error messages.
    option : str
        The option that names a member, for error messages.
    key : str
        The attribute with the member's name.
    """

    def __init__(self, kind: Any, package: str, group: str, *, noun: str, plugin: str, option: str, key: str) -> None:
        self.group = group
        self._kind, self._package = kind, package
        self._noun, self._plugin, self._option, self._key = noun, plugin, option, key

    def all(self) -> dict[str, T]:
        """Return all members by name."""
        return dict(self._known[0])

    def broken(self) -> dict[str, str]:
        """Return one line per broken plug-in on why it is skipped, by entry point name."""
        return dict(self._known[1])

    def find(self, name: str) -> T:
        """Return the member called `name`.

        Raises
        ------
        UsageError
            No member has that name.
        """
        known = self.all()
        if name not in known:
            raise UsageError(f"unknown {self._noun} '{name[:60]}'", where=self._option, hint=nearest(name[:80], known))
        return known[name]

    @cached_property
    def _known(self) -> tuple[dict[str, T], dict[str, str]]:
        known: dict[str, T] = {}
        for member in (member for module in modules(self._package) for member in module.MEMBERS):
            if (name := getattr(member, self._key)) in known:
                raise ValueError(f"two {self._noun}s are called '{name}'")
            known[name] = member
        broken: dict[str, str] = {}
        for entry in sorted(metadata.entry_points(group=self.group), key=lambda e: (e.name, e.value)):
            found, fault = self._loaded(entry)
            name = None if fault else getattr(found, self._key)
            if name in known:
                fault = f"there is already a {self._noun} called '{name}'"
            if fault:
                broken[entry.name] = f"the {self._plugin} plug-in {entry.name} ({entry.value}) cannot be used: {fault}"
            else:
                known[str(name)] = found
        return dict(sorted(known.items())), broken

    def _loaded(self, entry: metadata.EntryPoint) -> tuple[Any, str]:
        """Return the member that an entry point names, and why it cannot be used ('' if it can)."""
        try:
            member = entry.load()
        except Exception as error:  # noqa: BLE001 -- a plug-in may do anything
            return None, " ".join(f"{type(error).__name__}: {error}".split())
        if not isinstance(member, self._kind):
            return None, f"it is not an instance of {self._kind.__module__}.{self._kind.__qualname__}"
        return member, ""
