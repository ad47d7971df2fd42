"""tracekit serve."""

from __future__ import annotations

from typing import Annotated

import typer

from tracekit.cli.display import TerminalProgress
from tracekit.cli.needs import say_need
from tracekit.cli.options import TraceFolder
from tracekit.settings import Flag, MemoryLimit, TenantColumn


def serve(
    trace: TraceFolder,
    host: Annotated[
        str, Flag("--host HOST", "Address to listen on; by default only this machine can connect.")
    ] = "127.0.0.1",
    port: Annotated[int, Flag("--port N", "Port to listen on; 0 picks a free one.", 0, 65535)] = 8765,
    token: Annotated[
        str | None,
        Flag(
            "--token TOKEN",
            "Token that clients must send. If --host is not this machine, tracekit generates a token and prints it.",
            variable="TRACEKIT_TOKEN",
        ),
    ] = None,
    by: TenantColumn = None,
    replay_jobs: Annotated[
        int, Flag("--replay-jobs N", "Replay at most N jobs to estimate the effect of changes; 0 starts sooner.", 0)
    ] = 0,
    allow_missing: Annotated[bool, Flag("--allow-missing", "Skip partitions that are missing or damaged.")] = False,
    browser: Annotated[
        bool, Flag("--browser/--no-browser", "Open the page in a browser, if the machine has a screen.")
    ] = True,
    memory_limit: MemoryLimit = None,
) -> None:
    """Serve the report of a Trace as a live page on this machine.

    The page is the report of 'analyze'. You can also open a job, node or user, or select part of the Trace and
    recompute the answers for it. The server changes nothing. Ctrl-C stops it.

    Example: tracekit serve my-trace
    """
    import webbrowser

    from tracekit.serve.run import can_show
    from tracekit.serve.run import serve as serve_trace
    from tracekit.trace import Trace

    opened = Trace.open(trace, allow_missing=allow_missing).by(by).divided
    say_need(trace, "queries", memory_limit)

    def started(address: str) -> None:
        typer.echo(f"report: {address}  (Ctrl-C ends it)")
        if browser and can_show():
            webbrowser.open(address)

    with TerminalProgress() as progress:
        serve_trace(
            opened,
            host=host,
            port=port,
            token=token,
            replay_jobs=replay_jobs,
            memory_limit=memory_limit,
            started=started,
            progress=progress,
        )
