"""Load the compiled part of the replay. No other module loads it."""

from __future__ import annotations

import sys
import sysconfig
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import EngineMissingError

if TYPE_CHECKING:
    from types import ModuleType


_MODULE = "tracekit.replay.kernel"
_AGAIN = "install tracekit again with pip's --force-reinstall --no-deps --no-cache-dir"


def kernel() -> ModuleType:
    """Return the extension module.

    Raises
    ------
    EngineMissingError
        This installation has no extension module, or the module cannot be loaded.
    """
    try:
        return import_module(_MODULE)
    except ModuleNotFoundError as error:
        if error.name != _MODULE:
            raise
        raise _missing() from None
    except ImportError as error:
        what = f"the replay engine cannot be loaded: {error}"
        raise EngineMissingError(what, hint=_AGAIN) from error


def _missing() -> EngineMissingError:
    """Return the error for an installation without the extension, with instructions for this machine."""
    what = "tracekit was installed without its replay engine"
    if Path(sysconfig.get_path("include"), "Python.h").is_file():
        return EngineMissingError(what, hint=f"{_AGAIN} -v, which shows why it cannot be compiled")
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
    hint = f"install Python's headers (Debian, Ubuntu: apt install {package}), then {_AGAIN}"
    return EngineMissingError(f"{what}, because Python.h is missing", hint=hint)


class _Compiled:
    """The extension module, loaded when one of its names is first used."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(kernel(), name)
        setattr(self, name, value)
        return value


compiled = _Compiled()
"""The compiled functions and constants. Modules may import this object without loading the extension."""
