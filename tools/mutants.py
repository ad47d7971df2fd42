"""Change the code on purpose, one place at a time, and check that a test notices.

    python tools/mutants.py                     # every area of tools/mutating/areas.toml
    python tools/mutants.py cells intervals     # some areas
    python tools/mutants.py cells --all         # every mutant, not a sample

Cosmic Ray (dependency group `mutants`) finds and makes the changes in Python, and tools/mutating/tokens.py makes those
in Cython files. An area adds text changes for SQL, and for limits whose changes once went unnoticed. Only a copy of the
checkout is changed. Exit code 1 means that fewer mutants are noticed than an area requires, or that a mutant survives
without an explanation in tools/mutating/survivors.toml.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

from tools.mutating.mutants import Mutant, find, is_python, sampled, text_change  # noqa: E402 -- found by the line above
from tools.mutating.trial import Trials  # noqa: E402 -- found through the path set above

_COPIED: tuple[str, ...]
_COPIED = ("tracekit", "tests", "queries", "schemas", "reports", "sample_traces", "docs", "pyproject.toml", "README.md")
_COPIED += tuple(path.name for path in _ROOT.glob("hatch_build.py"))  # needed for compiling


def main() -> None:
    """Try the areas given on the command line."""
    areas = tomllib.loads((Path(__file__).parent / "mutating" / "areas.toml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("area", nargs="*", choices=[*areas, []], help="area in areas.toml; all by default")
    parser.add_argument("--all", action="store_true", help="try every mutant")
    arguments = parser.parse_args()
    listed = tomllib.loads((Path(__file__).parent / "mutating" / "survivors.toml").read_text(encoding="utf-8"))
    explained = {Mutant.of(entry): str(entry["why"]) for entry in listed["survivor"]}
    good = True
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for name in _COPIED:
            copy = shutil.copytree if (_ROOT / name).is_dir() else shutil.copy
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            copy(_ROOT / name, tree / name)
        for name in arguments.area or areas:
            good &= _try(name, areas[name], tree, explained, every=arguments.all)
    sys.exit(0 if good else 1)


def _try(name: str, area: dict[str, Any], tree: Path, explained: dict[Mutant, str], *, every: bool) -> bool:
    """Try one area's mutants, print the outcome, and return whether it is as required."""
    tried: list[Mutant] = []
    survivors: list[Mutant] = []
    for part in area["part"]:
        chosen = _chosen(part, tree, every=every)
        trials = Trials(tree, part["tests"], part.get("environment", {}), part.get("build", ()))
        begun = time.monotonic()
        for number, mutant in enumerate(chosen, 1):
            text = mutant.applied(tree)
            if not is_python(mutant.file, text):
                continue
            noticed = trials.notices(mutant.file, text)
            if noticed is None:
                continue
            tried.append(mutant)
            if not noticed:
                survivors.append(mutant)
                print(f"  survives: {mutant}\n      {explained.get(mutant, 'NOT EXPLAINED')}", flush=True)
            if number % 25 == 0:
                print(f"  {number} of {len(chosen)} in {time.monotonic() - begun:.0f} s", flush=True)
        trials.build()
    share = 1 - len(survivors) / len(tried)
    new = [mutant for mutant in survivors if mutant not in explained]
    print(f"{name}: {share:.1%} of {len(tried)} noticed, {area['least']:.0%} due; {len(new)} survivors not explained")
    for mutant in explained:
        if mutant in tried and mutant not in survivors:
            print(f"  listed as a survivor, but noticed now: {mutant}")
    return bool(share >= area["least"]) and not new


def _chosen(part: dict[str, Any], tree: Path, *, every: bool) -> list[Mutant]:
    found = [mutant for module in part.get("modules", ()) for mutant in find(tree, module)]
    chosen = found if every else sampled(found, part.get("sample", len(found)))
    changes = [text_change(entry["file"], entry["old"], entry["new"]) for entry in part.get("change", ())]
    print(
        f"{len(chosen)} of {len(found)} mutants, {len(changes)} changes of text: {' '.join(part['tests'])}", flush=True
    )
    return chosen + changes


if __name__ == "__main__":
    main()
