"""Find policies: in tracekit.policies and its subpackages, in installed plug-ins, and in the user's own files."""

from __future__ import annotations

import inspect
import sys
from functools import cache
from hashlib import blake2b
from importlib import import_module, metadata, util
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError, nearest
from tracekit.outputs import real_path

if TYPE_CHECKING:
    from types import ModuleType


# Policies import the engine, so the engine only knows their names and does not import them.
_PACKAGE = "tracekit.policies"
_GROUP = "tracekit.policies"


def policies() -> dict[str, type[Any]]:
    """Return every policy class by name: the policies in this package, then the installed plug-ins that work.

    Returns
    -------
    dict of subclasses of tracekit.policies.interface.Policy, sorted by name
    """
    return dict(_known()[0])


def broken_plugins() -> dict[str, str]:
    """Return one line per broken plug-in on why it cannot be used, by the name of its entry point."""
    return dict(_known()[1])


def named_policy(text: str) -> Any:
    """Return the policy that a command line names, such as 'srtf,overhead=helios'.

    Raises
    ------
    UsageError
        The policy or a parameter does not exist, or a value cannot be used.
    """
    return import_module(f"{_PACKAGE}.interface").parse_policy(text)


def find_policy(name: str) -> type[Any]:
    """Return the policy called `name`, or the class in a file named as `FILE.py:CLASS` or `FILE.py`.

    Raises
    ------
    UsageError
        No policy has this name, or its file or plug-in cannot be used.
    """
    path, _, inside = name.rpartition(":")
    if name.endswith(".py"):
        return _from_file(Path(name), None)
    if path.endswith(".py"):
        return _from_file(Path(path), inside)
    found, broken = _known()
    if name in found:
        return found[name]
    if name in broken:
        raise UsageError(broken[name], hint="repair or remove the plug-in")
    shown = name if len(name) <= 60 else f"{name[:57]}..."
    hint = nearest(name[:80], found)
    raise UsageError(f"unknown policy '{shown}'", hint=f"{hint}; 'tracekit policies' lists them")


@cache
def _known() -> tuple[dict[str, type[Any]], dict[str, str]]:
    """Return the policies by name and the errors of plug-ins by name."""
    found: dict[str, type[Any]] = {}
    for info in walk_packages(import_module(_PACKAGE).__path__, f"{_PACKAGE}."):
        if info.name.rpartition(".")[2].startswith("_"):
            continue
        for member in _members(import_module(info.name)):
            if member.card.name in found:
                raise ValueError(f"two policies have the name '{member.card.name}'")
            found[member.card.name] = member
    broken: dict[str, str] = {}
    for entry in sorted(metadata.entry_points(group=_GROUP), key=lambda e: (e.name, e.value)):
        member, fault = _plugin(entry)
        if not fault and member.card.name in found:
            fault = f"there is already a policy called '{member.card.name}'"
        if fault:
            broken[entry.name] = f"the policy plug-in {entry.name} ({entry.value}) cannot be used: {fault}"
        else:
            found[member.card.name] = member
    return dict(sorted(found.items())), broken


def _plugin(entry: metadata.EntryPoint) -> tuple[Any, str]:
    """Return the object that an entry point names, and the reason why it cannot be used ('' if it can)."""
    try:
        member = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 -- a plug-in may do anything, even exit
        return None, _error_text(error)
    return member, _fault(member)


def _base() -> type[Any]:
    base: type[Any] = import_module(f"{_PACKAGE}.interface").Policy
    return base


def _fault(member: object) -> str:
    """Return the reason why an object cannot be used as a policy, or '' if it can."""
    if not isinstance(member, type) or not issubclass(member, _base()):
        return "it is not a subclass of tracekit.policies.Policy"
    if inspect.isabstract(member):
        return f"{member.__name__} has no method mechanism"
    return "" if hasattr(member, "card") else f"{member.__name__} has no card"


def _members(module: ModuleType) -> list[type[Any]]:
    """Return the policies that a module itself defines, in order."""
    return [m for m in vars(module).values() if not _fault(m) and m.__module__ == module.__name__]


def _from_file(path: Path, name: str | None) -> type[Any]:
    module = _load(path)
    members = {m.__name__: m for m in _members(module)}
    if name is None:
        if len(members) == 1:
            return next(iter(members.values()))
        names = ", ".join(members) or "none"
        raise UsageError(f"contains {len(members)} policies: {names}", where=path, hint=f"name one: -p {path}:CLASS")
    if name in members:
        return members[name]
    if hasattr(module, name):
        raise UsageError(f"{name} cannot be used: {_fault(getattr(module, name)) or 'it is imported'}", where=path)
    raise UsageError(f"has no policy '{name[:60]}'", where=path, hint=nearest(name[:80], members))


def _load(path: Path) -> ModuleType:
    """Run a file as a module, once per content, so that its classes stay the same and pickle."""
    try:
        full = real_path(path)
        content = full.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the policy: {error.strerror or error}", where=path) from error
    except ValueError as error:
        raise UsageError(f"is not a path: {error}", where=path) from error
    key = blake2b(str(full).encode("utf-8", "surrogateescape") + b"\0" + content, digest_size=8).hexdigest()
    name = f"_tracekit_policy_{key}"
    if name in sys.modules:
        return sys.modules[name]
    spec = util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise UsageError("is not a Python file", where=path)
    module = util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        del sys.modules[name]
        raise
    except BaseException as error:  # the file may do anything, even exit
        del sys.modules[name]
        raise UsageError(f"cannot be run: {_error_text(error)}", where=path, line=_line(error, full)) from error
    return module


def _error_text(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}".strip().rstrip(":")
    return text if len(text) <= 300 else f"{text[:297]}..."


def _line(error: BaseException, path: Path) -> int | None:
    """Return the line where the user's file failed, or None if the error is elsewhere."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
