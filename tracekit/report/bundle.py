"""The Vega runtime, which every page embeds because charts must work without a network.

vl-convert contains Vega, Vega-Lite and Vega-Embed and bundles them in one or two seconds, on a thread that does not
block Python. The result is cached in the user's cache folder, by vl-convert version. An unreadable or unwritable cache
is ignored.
"""

from __future__ import annotations

import contextlib
import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path

_SNIPPET = "window.vegaEmbed=vegaEmbed;"
_NOTICE = (
    "/*! Vega, Vega-Lite, Vega-Embed: BSD-3-Clause, University of Washington Interactive Data Lab;"
    " D3: ISC, Mike Bostock */\n"
)
_END = "\n})();\n"


@cache
def start_bundle() -> Future[str]:
    """Start building the bundle on another thread, unless this has already started.

    Call this early, so the bundle is ready when the page needs it. Errors are raised only then.
    """
    pool = ThreadPoolExecutor(1)
    found = pool.submit(_bundle)
    pool.shutdown(wait=False)
    return found


def vega_bundle() -> str:
    """Return a script that defines `vegaEmbed` as its only global name."""
    return start_bundle().result()


def _bundle() -> str:
    import vl_convert

    made_by = f"{version('vl-convert-python')}-{vl_convert.get_vega_embed_version()}"
    kept = _cache_file(made_by)
    text = _read(kept) if kept else None
    if text is None:
        body = str(vl_convert.javascript_bundle(_SNIPPET))
        # The bundle declares short top-level names, so wrap it in a function to keep them apart from the page's names.
        # '</script' and '<!--' would end or break the script element.
        safe = body.replace("</script", "<\\/script").replace("<!--", "<\\!--")
        text = f"{_NOTICE}(function(){{{safe}{_END}"
        if kept:
            _keep(kept, text)
    return text


def _cache_file(made_by: str) -> Path | None:
    """Return the path of the cached bundle, in the user's own folder because others can write to shared folders."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    with contextlib.suppress(RuntimeError):
        return Path(base).expanduser() / "tracekit" / f"vega-{made_by}.js" if base else None
    return None


def _read(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = path.read_text(encoding="utf-8")
        # If another program truncated the file, the page must not stay blank.
        return text if text.startswith(_NOTICE) and text.endswith(_END) else None
    return None


def _keep(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
