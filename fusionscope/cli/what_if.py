"""``fusionscope what-if DUMP``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusionscope.cli.output import (
    cache_option,
    changes_options,
    device_option,
    format_options,
    jobs_option,
    read_changed_rules,
    rules_option,
    top_option,
    write_report,
)
from fusionscope.cli.progress import show_progress
from fusionscope.errors import UnusableInput

if TYPE_CHECKING:
    from fusionscope.dump.device import Device

_NOTHING = (
    "no change is given: expected --set, --disable, --allow, --forbid, --plan, or another --device"
)


@click.command(name="what-if")
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("--module", metavar="GLOB", help="Only these modules, by name or number.")
@changes_options
@device_option
@rules_option
@top_option
@cache_option
@jobs_option
@format_options("text", "json", "markdown")
def command(
    dump: Path,
    module: str | None,
    set_: tuple[str, ...],
    disable: tuple[str, ...],
    allow: tuple[str, ...],
    forbid: tuple[str, ...],
    plan: Path | None,
    device: Device | None,
    rules: str | None,
    top: int,
    no_cache: bool,
    jobs: int,
    format_name: str,
    output: Path | None,
) -> int:
    """Show what would be fused under changed rules, or on another GPU.

    The passes that decide are replayed with the changed rules; no compiler is needed. `fusionscope
    rerun` makes the compiler do it. Rules and their thresholds: `fusionscope rules`.

    \b
    Examples:
      fusionscope what-if dump_dir/ --set cpu-max-reductions.limit=12
      fusionscope what-if dump_dir/ --allow 'concatenate* -> *' --disable cpu-code-dup
      fusionscope what-if dump_dir/ --device b200
    """
    from fusionscope.dump import open_dump
    from fusionscope.dump.cache import DumpCache, user_cache
    from fusionscope.explain import Selection, explain, sheets

    changes = read_changed_rules(set_, disable, allow, forbid, plan)
    if changes is None and device is None:
        raise UnusableInput(_NOTHING)
    opened = open_dump(dump)
    cache = DumpCache(opened, None if no_cache else user_cache())
    selection = Selection(module=module, changes=changes, rules=rules, device=device)
    with show_progress() as progress:
        explanation = explain(opened, selection, jobs=jobs, progress=progress, cache=cache)
    write_report(
        "explain",
        explanation,
        format_name,
        output,
        explanation.problems,
        sheets.what_if(explanation, top),
    )
    return 0
