"""Update uv.lock without the addresses from which packages were downloaded.

    python tools/lock.py

uv records where it found each file. Our lock file pins only versions, so it works with any index or mirror, and `uv
export --frozen` reads it unchanged.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_LOCK = Path(__file__).parent.parent / "uv.lock"


def without_addresses(text: str) -> str:
    """Remove every registry and file address from a lock file's text."""
    text = re.sub(r'registry = "[^"]*"', 'registry = "."', text)
    text = re.sub(r"^sdist = .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^wheels = \[\n(?:    .*\n)*\]\n", "", text, flags=re.MULTILINE)


def main() -> None:
    """Update the lock file and remove the addresses."""
    _LOCK.unlink(missing_ok=True)
    subprocess.run(["uv", "lock", "--quiet"], cwd=_LOCK.parent, check=True)
    text = without_addresses(_LOCK.read_text(encoding="utf-8"))
    if "://" in text:
        message = "an address is left in uv.lock"
        raise SystemExit(message)
    _LOCK.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
