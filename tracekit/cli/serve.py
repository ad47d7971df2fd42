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
        str, typer.Option(metavar="HOST", help="Where to listen; by default only this machine can connect.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", help="Port to listen at; 0 takes any that is free.", min=0, max=65535)
    ] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="What whoever connects has to know; on another host than this machine one is made and printed.",
            envvar="TRACEKIT_TOKEN",
            show_envvar=True,
            show_default=False,
        ),
    ] = None,
    by: TenantColumn = None,
    replay_jobs: Annotated[
        int,
        typer.Option(metavar="N", help="Replay N jobs at most to tell what changes would do; 0 starts sooner.", min=0),
    ] = 0,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Answer without partitions that are missing or damaged.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser, where there is a screen.")
    ] = True,
    memory_limit: MemoryLimit = None,
) -> None:
    """Serve the report of a Trace on this machine, with the Trace behind it.

    The page is that of 'analyze'. Where a part of it is chosen, the answers are asked of the Trace again, and a job, a
    node or a user can be opened. Everything is only read. Ctrl-C ends it.

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
