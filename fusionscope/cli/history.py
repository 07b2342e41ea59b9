"""``fusionscope history DUMP [NAME]``."""

from __future__ import annotations

from pathlib import Path

import click

from fusionscope.cli.output import format_options, top_option, write_report
from fusionscope.cli.progress import show_progress


@click.command(name="history")
@click.argument("dump", type=click.Path(path_type=Path))
@click.argument("name", required=False)
@click.option("--module", metavar="GLOB", help="Only these modules, by name or number.")
@top_option
@click.option("--all", "everything", is_flag=True, help="Show all modules and full lists.")
@format_options("text", "json", "markdown")
def command(
    dump: Path,
    name: str | None,
    module: str | None,
    top: int,
    everything: bool,
    format_name: str,
    output: Path | None,
) -> None:
    """Show how fusions formed pass by pass, or trace one instruction.

    DUMP is as for explain. It needs its stages: make it with --xla_dump_hlo_pass_re=.*. Without
    NAME, history lists the passes that changed fusions, what each one did, and the order of the
    single fusions if the compiler recorded it. With the NAME of an instruction or a fusion in any
    stage, it shows where that came from, what each pass did to it, and the kernel that it ended in,
    or why it could be removed. Write NAME@STAGE if stages use one name for different things.

    \b
    Examples:
      fusionscope history dump_dir/
      fusionscope history dump_dir/ exp.1
      fusionscope history dump_dir/ loop_add_fusion@final
      fusionscope history dump_dir/ --module jit_step --format json --output history.json
    """
    from fusionscope.compare.module_history import history_of
    from fusionscope.dump import open_dump
    from fusionscope.report.history import sections_of

    with show_progress() as progress:
        history = history_of(
            open_dump(dump), name, module=module, all_modules=everything, progress=progress
        )
    limit = None if everything else top
    write_report(
        "history",
        history,
        format_name,
        output,
        history.problems,
        sections_of(history, limit),
    )
