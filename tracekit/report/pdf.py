"""Print a report's page to PDF with an installed Chromium."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path

from tracekit.errors import OutputError, TracekitError, UsageError
from tracekit.interruption import cleanup_on_interrupt, end_process, temporary_folder
from tracekit.outputs import FREE, final_place, output_errors
from tracekit.text import passed_on

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "msedge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
"""Programs that can print, in search order."""

_SCRIPT = re.compile(r"(<script\b.*?</script>)", re.DOTALL)
_LINK_TO_FILE = re.compile(r"""(<a\b[^<>]*?)\shref=(?:"(?!#|https?:|mailto:)[^"]*"|'(?!#|https?:|mailto:)[^']*')""")
_SECONDS = 120
_DRAWING_MS = 20_000
"""Virtual time for the page to draw its charts. It passes as fast as the work allows."""


def find_browser() -> Path:
    """Find the browser to print with: $TRACEKIT_BROWSER, or the first of `BROWSERS` that is installed.

    Raises
    ------
    UsageError
        No such browser is installed.
    """
    named = os.environ.get("TRACEKIT_BROWSER")
    for name in (named,) if named else BROWSERS:
        found = shutil.which(name)
        if found:
            return Path(found)
    what = f"'{named}' was not found" if named else "no Chromium or Chrome is installed"
    hint = "install a browser, name it in TRACEKIT_BROWSER, or print report.html from any browser"
    raise UsageError(f"{what}, which is needed to write the PDF", where="--pdf", hint=hint)


def print_pdf(page: Path, target: Path) -> None:
    """Print a page to a PDF, completely or not at all. The page is opened without a network.

    Raises
    ------
    UsageError
        No browser is installed.
    TracekitError
        The browser failed.
    OutputError
        The file cannot be written.
    """
    browser = find_browser()
    with temporary_folder("pdf") as scratch:
        made, alone = scratch / "report.pdf", scratch / "report.html"
        with output_errors(target):
            text = page.read_text(encoding="utf-8")
            alone.write_text(_alone(text), encoding="utf-8")
        command = [
            str(browser),
            "--headless",
            "--disable-gpu",
            "--disable-extensions",
            "--no-first-run",
            "--no-pdf-header-footer",
            # The page makes no requests; this would block any.
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--virtual-time-budget={_DRAWING_MS}",
            f"--user-data-dir={scratch}/profile",
            f"--print-to-pdf={made}",
            alone.resolve().as_uri(),
        ]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # as root, Chromium needs this; the page runs only our own scripts
        try:
            done = _run(command)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TracekitError(f"{browser.name} could not print: {error}", where=final_place(target)) from error
        if done.returncode or not made.is_file() or not made.stat().st_size:
            what, place = f"{browser.name} could not print: {_said(done.stderr)}", final_place(target)
            if os.strerror(errno.ENOSPC) in what:
                raise OutputError(what, where=place, hint=FREE)
            raise TracekitError(what, where=place)
        part = target.with_name(f".{target.name}.partial")
        try:
            with output_errors(target):
                shutil.copyfile(made, part)
                part.replace(target)
        finally:
            part.unlink(missing_ok=True)


def _alone(text: str) -> str:
    """Remove a page's links to neighbouring files.

    In the PDF they would become local paths, which are useless to other readers and reveal where the report is stored.
    Scripts stay unchanged, because the page's policy lists their hashes.
    """
    parts = _SCRIPT.split(text)
    parts[::2] = [_LINK_TO_FILE.sub(r"\1", part) for part in parts[::2]]
    return "".join(parts)


def _said(stderr: bytes) -> str:
    """Return the last line of the browser's output, or only the reason if it names a file that cannot be written."""
    line = (stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]
    return passed_on(re.sub(r"^\[[^\]]*:ERROR:[^\]]*\] ", "", line), 200)


def _run(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run a program until it exits. An interruption also stops it."""
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,  # noqa: S603 -- no shell
        cleanup_on_interrupt(lambda: end_process(process.pid)),
    ):
        try:
            out, stderr = process.communicate(timeout=_SECONDS)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, stderr)
