"""Generate the reference pages in docs/ from the package.

python tools/reference.py             # write them
python tools/reference.py --check     # only list outdated pages, with exit code 1 if there are any
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.manual import commands, datasets, exports, formats, guidelines, policies, queries  # noqa: E402 -- found through the line above
from tracekit import schema  # noqa: E402 -- found through the path set above

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PAGES", "stale"]

PAGES: dict[str, Callable[[], str]] = {
    "columns.md": schema.reference,
    "reference/commands.md": commands.page,
    "reference/datasets.md": datasets.page,
    "reference/exports.md": exports.page,
    "reference/formats.md": formats.page,
    "reference/guidelines.md": guidelines.page,
    "reference/policies.md": policies.page,
    "reference/queries.md": queries.page,
}
"""Functions that generate the pages, by path below docs/."""


def stale(docs: Path) -> list[str]:
    """Return the pages below `docs` that are out of date."""
    return [name for name, make in PAGES.items() if not _same(docs / name, make())]


def _same(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


def main() -> None:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only list outdated pages")
    docs = ROOT / "docs"
    if parser.parse_args().check:
        old = stale(docs)
        for name in old:
            print(f"docs/{name} is out of date; run python tools/reference.py")
        sys.exit(bool(old))
    for name, make in PAGES.items():
        file = docs / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
