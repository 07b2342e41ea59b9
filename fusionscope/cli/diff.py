"""``fusionscope diff BEFORE AFTER``."""

from __future__ import annotations

from pathlib import Path

import click

from fusionscope.cli.output import format_options, top_option, write_report
from fusionscope.cli.progress import show_progress


@click.command(name="diff")
@click.argument("before")
@click.argument("after")
@click.option("--module", metavar="GLOB", help="Only modules with a matching name.")
@top_option
@click.option("--all", "everything", is_flag=True, help="Show full lists.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything differs.")
@format_options("text", "json", "markdown")
@click.pass_context
def command(
    context: click.Context,
    before: str,
    after: str,
    module: str | None,
    top: int,
    everything: bool,
    exit_code: bool,
    format_name: str,
    output: Path | None,
) -> None:
    """Compare two files, two stages or two dumps.

    BEFORE and AFTER are two HLO files, two stages (DUMP@pre-fusion, DUMP@final, or DUMP@ with a
    stage's number or a part of its name), or two dump directories: two compilers, two sets of
    flags, two devices, two versions of a program. Names, metadata, notation and the order of the
    text do not count.

    The worst comes first: the lines of the program whose time changed most; pairs that are no
    longer fused, with the reason on both sides; fusions that were lost, gained or changed, with the
    passes that made them; then plain edits of instructions. For two dumps, diff also names the pass
    after which they diverge, and the first recorded decision that differs.

    \b
    Examples:
      fusionscope diff before.hlo after.hlo
      fusionscope diff dump_dir/@pre-fusion dump_dir/@final
      fusionscope diff dump_old_jax/ dump_new_jax/ --format markdown
      fusionscope diff dump_main/ dump_branch/ --exit-code
    """
    from fusionscope.compare.difference import compare
    from fusionscope.report.difference import sections_of

    with show_progress() as progress:
        difference = compare(before, after, module=module, progress=progress)
    limit = None if everything else top
    write_report(
        "diff",
        difference,
        format_name,
        output,
        (*difference.problems, *difference.notes),
        sections_of(difference, limit),
    )
    if exit_code and not difference.is_same:
        context.exit(1)
