"""Imitate `pip install ./FOLDER` without a network, for the modules and entry points of FOLDER.

The script writes what pip would write to site-packages to the folder $TOOLS, which is on PYTHONPATH. A real
installation needs the build backend, which a test cannot fetch.
"""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from pathlib import Path


def install(folder: Path, into: Path) -> None:
    """Copy a package's modules and write its entry points."""
    with (folder / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    for module in folder.glob("*.py"):
        shutil.copy(module, into)
    info = into / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    assert sys.argv[1:-1] == ["install"], f"only 'pip install ./FOLDER' is known, not {sys.argv[1:]}"
    install(Path(sys.argv[-1]), Path(os.environ["TOOLS"]))
