"""``fusionscope mcp DIR...``."""

from __future__ import annotations

import gc
from pathlib import Path

import click


@click.command(name="mcp")
@click.argument("roots", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--allow-run",
    "allows_runs",
    is_flag=True,
    help="Also offer tools that compile and run programs: rerun and record.",
)
def command(roots: tuple[Path, ...], allows_runs: bool) -> None:
    """Answer an agent's questions about dumps, by the Model Context Protocol.

    An agent starts this command and talks to it over standard input and output. It can name dumps
    below the directories DIR, and nothing else. Without --allow-run nothing is compiled, run or
    written but fusionscope's cache.

    \b
    Examples:
      fusionscope mcp dumps/
      fusionscope mcp --allow-run ~/project
      claude mcp add fusionscope -- fusionscope mcp dumps/
    """
    from fusionscope.agents.server import make_server
    from fusionscope.system.roots import Roots

    server = make_server(Roots.read(roots), allows_runs=allows_runs)
    gc.enable()  # this command does not end soon
    server.run()
