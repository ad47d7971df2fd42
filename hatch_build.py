"""The build hook: Cython and a C compiler turn every .pxi file of the package into one extension module.

Where Python's headers are missing or the C compiler fails, tracekit is installed without the extension: everything but
replays works, and `tracekit.replay.native` says what to install. A mistake in a .pxi file ends the build.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "tracekit.replay.kernel"
FIRST = "tracekit/replay/engine/state.pxi"
"""The file that all others build on."""
CHECKED = "checked"
"""Value of TRACEKIT_BUILD for an extension that looks at every index and every sum, for tests."""

DIRECTIVES = {
    "language_level": "3",
    "boundscheck": "False",
    "wraparound": "False",
    "initializedcheck": "False",
    "nonecheck": "False",
    "overflowcheck": "False",
    "cdivision": "False",  # as in Python: // rounds down, and dividing by zero is an error
}
CHECKS = ("boundscheck", "initializedcheck", "nonecheck", "overflowcheck")
# The limited API of Python 3.11: one file for this Python and all later ones.
FLAGS = ["-fwrapv", "-fno-strict-aliasing", "-fvisibility=hidden", "-DNDEBUG", "-DPy_LIMITED_API=0x030B0000"]
FLAGS_FAST = ["-O3", "-g0"]
FLAGS_CHECKED = ["-O1", "-g", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
FLAGS_OF_LINUX = ["-shared", "-fPIC"]
FLAGS_OF_SYSTEM = {
    "darwin": ["-shared", "-fPIC", "-undefined", "dynamic_lookup"],
    "win32": ["-shared", f"-L{sys.base_prefix}/libs", "-lpython3"],
}


class KernelHook(BuildHookInterface[Any]):
    """Puts the extension into the wheel, or into the checkout for an editable installation."""

    _kept = ExitStack()

    def dependencies(self) -> list[str]:
        """Return the compiler to download, where there is none and all else that it takes is there."""
        return ["ziglang>=0.13"] if header().is_file() and not installed_compiler() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the extension; `version` is 'standard' or 'editable'."""
        suffixes = importlib.machinery.EXTENSION_SUFFIXES
        name = MODULE.replace(".", "/") + next((s for s in suffixes if "abi3" in s), suffixes[-1])
        in_place = Path(self.root, name)
        if version == "editable":
            in_place.unlink(missing_ok=True)  # one made from other sources must not stay where this build fails
        if not header().is_file():
            self._leave_out(f"{header()} is missing")
            return
        checked = os.environ.get("TRACEKIT_BUILD") == CHECKED
        with ExitStack() as stack:
            built = Path(stack.enter_context(TemporaryDirectory(prefix="tracekit-build-")), in_place.name)
            source = self._translate(built.with_name("kernel.pyx"), checked=checked)
            try:
                compile_c(source, built, checked=checked)
            except (OSError, subprocess.CalledProcessError) as error:
                self._leave_out(f"the C compiler failed: {error}")
                return
            if version == "editable":
                shutil.copy(built, in_place)
            else:
                build_data["force_include"][str(built)] = name
                build_data |= {"pure_python": False, "tag": f"cp311-abi3-{platform_tag()}"}
                self._kept = stack.pop_all()  # the folder stays until the wheel is written

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 -- hatchling's
        """Remove the temporary folder, once the wheel is written."""
        self._kept.close()

    def _translate(self, pyx: Path, *, checked: bool) -> Path:
        """Write the module's text and the C file made of it, and return this."""
        pyx.write_text(module_text(Path(self.root), checked=checked), encoding="utf-8")
        c_file = pyx.with_suffix(".c")
        options = ["--module-name", MODULE, "--include-dir", self.root, "--output-file", str(c_file)]
        if subprocess.run([sys.executable, "-m", "cython", *options, str(pyx)], check=False).returncode:
            self.app.abort("Cython found a mistake in a .pxi or .pxd file of tracekit, see above.")
        return c_file

    def _leave_out(self, why: str) -> None:
        self.app.display_warning(f"tracekit is built WITHOUT its replay engine, everything else works: {why}")


def module_text(root: Path, *, checked: bool) -> str:
    """Return the text of the extension module: directives, and an include of every .pxi file.

    The state.pxi of the engine comes first, then those of the other packages, then all other files by path.
    """
    names = [path.relative_to(root).as_posix() for path in root.glob("tracekit/**/*.pxi")]
    names.sort(key=lambda name: (name != FIRST, not name.endswith("/state.pxi"), name))
    directives = DIRECTIVES | dict.fromkeys(CHECKS if checked else (), "True")
    head = [f"# cython: {key}={value}" for key, value in directives.items()]
    facts = [f"CHECKED = {checked}", f'SOURCES = "{digest(root)}"']
    return "\n".join([*head, '"""The compiled part of the replay."""', *facts, *(f'include "{n}"' for n in names), ""])


def digest(root: Path) -> str:
    """Return a digest of all sources of the extension, by which an outdated one is told."""
    found = hashlib.sha256()
    for path in sorted(path for suffix in ("pxd", "pxi") for path in root.glob(f"tracekit/**/*.{suffix}")):
        found.update(f"{path.relative_to(root).as_posix()} {path.stat().st_size}\n".encode() + path.read_bytes())
    return found.hexdigest()


def header() -> Path:
    """Return where the C header of this Python is, or would be."""
    return Path(sysconfig.get_path("include"), "Python.h")


def installed_compiler() -> list[str]:
    """Return the command of the C compiler: $CC, or Python's own, cc, gcc or clang where installed; else nothing."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    usual = (sysconfig.get_config_var("CC"), "cc", "gcc", "clang")
    commands = (shlex.split(command) for command in usual if command)
    return next((command for command in commands if shutil.which(command[0])), [])


def compile_c(source: Path, target: Path, *, checked: bool) -> None:
    """Compile and link; zig, which is asked for where no compiler is installed, keeps its caches beside the source.

    Raises
    ------
    OSError, CalledProcessError
        The compiler cannot be run, or fails.
    """
    command = installed_compiler() or [sys.executable, "-m", "ziglang", "cc"]
    command += [*FLAGS, *(FLAGS_CHECKED if checked else FLAGS_FAST), *FLAGS_OF_SYSTEM.get(sys.platform, FLAGS_OF_LINUX)]
    command += [*shlex.split(os.environ.get("CFLAGS", "")), f"-I{header().parent}", str(source), "-o", str(target)]
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(source.parent / "zig"))
    subprocess.run(command, check=True, env=os.environ | caches)


def platform_tag() -> str:
    """Return the platform of the wheel; on macOS that of this processor alone, even where Python serves both."""
    return sysconfig.get_platform().replace("universal2", platform.machine()).translate(str.maketrans("-.", "__"))
