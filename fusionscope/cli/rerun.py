"""``fusionscope rerun DUMP``."""

from __future__ import annotations

from pathlib import Path

import click

from fusionscope.cli.output import (
    changes_options,
    compiling_options,
    open_console,
    top_option,
    write_json,
)
from fusionscope.errors import UnusableInput


@click.command(name="rerun")
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("--module", metavar="GLOB", help="The module, by name or number.")
@click.option("--replay", "is_own", is_flag=True, help="Try: the compiler's own plan, as a check.")
@click.option("--no-fusion", "is_none", is_flag=True, help="Try: fuse nothing.")
@changes_options
@compiling_options("fusionscope-rerun", "Where the new dump goes.")
@top_option
def command(
    dump: Path,
    module: str | None,
    is_own: bool,
    is_none: bool,
    set_: tuple[str, ...],
    disable: tuple[str, ...],
    allow: tuple[str, ...],
    forbid: tuple[str, ...],
    plan: Path | None,
    flags: list[str],
    output: Path,
    python: str,
    limit_s: float,
    top: int,
    format_name: str,
) -> int:
    """Compile a dumped program again, with the fusions that changed rules make.

    DUMP is one of an NVIDIA GPU with all stages, as capture makes it; the GPU need not be here. The
    changed rules are replayed, and the real compiler takes what they make in the place of its own
    fusions. The new dump is held against the plan: exit code 1 where something else came of it, or
    the compiler died of it.

    \b
    Examples:
      fusionscope rerun dump_dir/ --replay
      fusionscope rerun dump_dir/ --allow 'concatenate* -> *'
      fusionscope rerun dump_dir/ --forbid 'exponential -> reduce' --output without
      fusionscope rerun dump_dir/ --no-fusion
    """
    from fusionscope.dump import open_dump
    from fusionscope.explain.explain import pick_modules
    from fusionscope.report.rerun import print_rerun, to_json
    from fusionscope.rerun.plans import Rest, make_plan, own_plan
    from fusionscope.rerun.rerun import rerun
    from fusionscope.rules.changes import read_changes, read_plan

    changes = read_changes(set_, disable, allow, forbid)
    if plan is not None:
        changes = read_plan(plan).changes | changes
    if is_own + is_none + bool(changes) != 1:
        raise UnusableInput(
            "nothing to try, or several things at once: expected --replay, --no-fusion, or changed "
            "rules (--set, --disable, --allow, --forbid, --plan)"
        )
    opened = open_dump(dump)
    picked = pick_modules(opened, module)
    modules = picked
    if len(modules) > 1:
        names = ", ".join(f"{each.name} ({each.number})" for each in modules[:8])
        raise UnusableInput(f"several modules: {names}", hint="name one with --module")
    (chosen,) = modules
    if is_own:
        wanted = own_plan(chosen)
    else:
        wanted = make_plan(chosen, changes, Rest.OFF if is_none else Rest.RULES)
    found = rerun(
        chosen,
        wanted,
        output,
        flags=flags,
        python=python,
        limit_s=limit_s,
    )
    if format_name == "json":
        write_json(to_json(found), None)
    else:
        with open_console(None) as console:
            print_rerun(found, console, top)
    return 0 if found.holds else 1
