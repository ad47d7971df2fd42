"""tracekit serve."""

from __future__ import annotations

from typing import Annotated

import typer

from tracekit.cli.needs import say_need_of_queries
from tracekit.cli.options import MemoryLimit, TenantColumn, TraceFolder

__all__ = ["serve"]


def serve(
    trace: TraceFolder,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Address to listen on; by default only this machine can connect.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", help="Port to listen on; 0 picks a free one.", min=0, max=65535)
    ] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help=(
                "Token that clients must know. With any --host other than this machine, tracekit makes and prints one."
            ),
            envvar="TRACEKIT_TOKEN",
            show_envvar=True,
            show_default=False,
        ),
    ] = None,
    by: TenantColumn = None,
    replay_jobs: Annotated[
        int,
        typer.Option(
            metavar="N", help="Replay at most N jobs to estimate the effect of changes; 0 starts sooner.", min=0
        ),
    ] = 0,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Skip partitions that are missing or damaged.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser, if the machine has a screen.")
    ] = True,
    memory_limit: MemoryLimit = None,
) -> None:
    """Serve the report of a Trace as a live page on this machine.

    The page is that of 'analyze', but you can select a part of the Trace, which computes the answers again, and open a
    job, a node or a user. The server only reads. Ctrl-C ends it.

    Example: tracekit serve my-trace
    """
    import webbrowser

    from tracekit.cli.display import TerminalProgress
    from tracekit.serve.run import can_show
    from tracekit.serve.run import serve as serve_trace
    from tracekit.trace import Trace

    opened = Trace.open(trace, allow_missing=allow_missing).by(by)
    say_need_of_queries(trace, memory_limit)

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
