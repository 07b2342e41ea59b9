"""``fusionscope experiment DUMP 'P -> C'``."""

from __future__ import annotations

from pathlib import Path

import click

from fusionscope.cli.output import (
    cache_option,
    format_options,
    python_option,
    top_option,
    write_report,
)
from fusionscope.cli.progress import show_progress
from fusionscope.facts.pair_names import read_pair

_LIMIT_S = 60.0  # for one program


@click.command(name="experiment")
@click.argument("dump", type=click.Path(path_type=Path))
@click.argument("pair", metavar="'P -> C'|unknown")
@click.option("--module", metavar="GLOB", help="The module, by name or number.")
@python_option
@top_option
@cache_option
@format_options("text", "json")
def command(
    dump: Path,
    pair: str,
    module: str | None,
    python: str,
    top: int,
    no_cache: bool,
    format_name: str,
    output: Path | None,
) -> int:
    """Ask the compiler what must change for a refused pair to be fused.

    Pairs are names or opcodes, with * and ?; `unknown` stands for those without a reason, the
    costliest first. A pair is cut out with its surroundings, one factor is changed, and the program
    is compiled: a factor that alone makes the pair fuse is a cause.

    \b
    Examples:
      fusionscope experiment dump_dir/ 'multiply* -> pad*'
      fusionscope experiment dump_dir/ unknown --top 20
    """
    from fusionscope.dump import open_dump
    from fusionscope.dump.cache import user_cache
    from fusionscope.experiments.experiments import UNKNOWN, run_experiments
    from fusionscope.explain.modules import pick_module
    from fusionscope.report.experiments import sections_of

    if pair != UNKNOWN:
        read_pair(pair)
    opened = open_dump(dump)
    with show_progress() as progress:
        experiments = run_experiments(
            pick_module(opened, module),
            pair,
            top=top,
            python=python,
            limit_s=_LIMIT_S,
            cache=None if no_cache else user_cache(),
            progress=progress,
        )
    write_report(
        "experiments",
        experiments,
        format_name,
        output,
        opened.unreported_problems(),
        sections_of(experiments),
    )
    return 0
