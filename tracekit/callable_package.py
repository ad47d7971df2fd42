"""Packages that are also the function they are named after.

`tracekit.replay(trace)` is part of the API, and so is `from tracekit.replay.mechanisms import Ordered`. Python binds
the name to the package as soon as any of its modules is imported, so that the package itself has to be what is called.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["make_callable"]


class _CallablePackage(ModuleType):
    """A package with a function, which is imported when it is first called."""

    def _function(self) -> Callable[..., Any]:
        home, _, name = _FUNCTIONS[self.__name__].partition(":")
        found: Callable[..., Any] = getattr(import_module(home), name)
        return found

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the function."""
        return self._function()(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        """What the function takes."""
        return inspect.signature(self._function())


_FUNCTIONS: dict[str, str] = {}


def make_callable(package: str, function: str) -> None:
    """Make calls of a package calls of a function.

    Parameters
    ----------
    package : str
        Its name.
    function : str
        Module and name, such as 'tracekit.replay.api:replay'.
    """
    _FUNCTIONS[package] = function
    sys.modules[package].__class__ = _CallablePackage
