"""Make a package callable as the function of the same name.

Both `tracekit.replay(trace)` and `from tracekit.replay.mechanisms import Ordered` are part of the API. Python binds the
name to the package as soon as one of its modules is imported, so the package itself must be callable.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def make_callable(package: str, home: str) -> None:
    """Make a call of the package run the function of the same name in the module `home`, imported lazily."""
    name = package.rpartition(".")[2]

    class CallablePackage(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(import_module(home), name)(*arguments, **options)

        @property
        def __signature__(self) -> inspect.Signature:
            return inspect.signature(getattr(import_module(home), name))

    sys.modules[package].__class__ = CallablePackage
