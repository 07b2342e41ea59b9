"""``fusionscope explain DUMP``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusionscope.cli.output import (
    changes_options,
    device_option,
    format_options,
    python_option,
    rules_option,
    show_progress,
    top_option,
    write_report,
)
from fusionscope.errors import UnusableInput, quoted

if TYPE_CHECKING:
    from fusionscope.dump.device import Device


@click.command(name="explain")
@click.argument("dump", type=click.Path(path_type=Path))
@click.option(
    "--pair", metavar="'P -> C'", help="Only these pairs: names or opcodes; * and ? match."
)
@click.option("--op", "opcode", metavar="OPCODE", help="Only pairs that contain this operation.")
@click.option("--source", metavar="FILE[:LINE]", help="Only pairs from this source line.")
@click.option("--computation", metavar="GLOB", help="Only pairs in these computations.")
@click.option("--reason", metavar="ID", help="Only pairs refused for this reason.")
@click.option("--module", metavar="GLOB", help="Only these modules, by name or number.")
@click.option(
    "--movements", is_flag=True, help="Also show why copies, transposes and converts are there."
)
@rules_option
@device_option
@changes_options
@top_option
@click.option(
    "--try/--no-try", "tries", default=True, help="Try what could help, and show what does."
)
@click.option(
    "--compile",
    "compiles",
    is_flag=True,
    help="Compile the program with each recipe that fits, and run it if its device is a CPU here.",
)
@python_option
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show all modules and pairs, and full lists; try changes however long it takes.",
)
@format_options("text", "json", "markdown")
def command(
    dump: Path,
    pair: str | None,
    opcode: str | None,
    source: str | None,
    computation: str | None,
    reason: str | None,
    module: str | None,
    movements: bool,
    rules: str | None,
    device: Device | None,
    set_: tuple[str, ...],
    disable: tuple[str, ...],
    allow: tuple[str, ...],
    forbid: tuple[str, ...],
    plan: Path | None,
    top: int,
    tries: bool,
    compiles: bool,
    python: str,
    everything: bool,
    format_name: str,
    output: Path | None,
) -> None:
    """Show which operations were fused into one kernel, and why (not).

    DUMP is a directory that XLA wrote with --xla_dump_to, the output that it printed with
    --xla_dump_to=-, or a single HLO file. Reasons come from the compiler's own records in the dump
    (PriorityFusion writes one for GPUs, --xla_dump_fusion_visualization one for every backend) and,
    for CPUs and GPUs, from a replay of its rules. If you change rules, explain also shows what the
    changes would do. --device names the GPU if DUMP does not describe it; if DUMP does, explain
    also shows what would be fused on the named GPU.

    \b
    Examples:
      fusionscope explain dump_dir/
      fusionscope explain dump_dir/ --pair 'exponential -> reduce'
      fusionscope explain dump_dir/ --source model.py:42
      fusionscope explain dump_dir/ --reason pf-negative --top 20
      fusionscope explain dump_dir/ --set cpu-max-reductions.limit=12
      fusionscope explain dump_dir/ --allow 'concatenate* -> *' --disable cpu-code-dup
      fusionscope explain dump_dir/ --device b200
      fusionscope explain dump_dir/ --movements
      fusionscope explain dump_dir/ --compile
      fusionscope explain dump_dir/ --format json --output explanation.json
    """
    from fusionscope.dump import open_dump
    from fusionscope.explain import Selection, explain
    from fusionscope.report.explanation import print_explanation, to_markdown
    from fusionscope.rules.changes import read_changes

    producer, consumer = _ends(pair)
    changes = read_changes(set_, disable, allow, forbid)
    if plan is not None:
        from fusionscope.rules.plan_files import read_plan

        changes = read_plan(plan).changes | changes
    selection = Selection(
        module=module,
        computation=computation,
        producer=producer,
        consumer=consumer,
        opcode=opcode,
        source=source,
        reason=reason,
        all_modules=everything,
        movements=movements,
        changes=changes,
        rules=rules,
        device=device,
    )
    suggest = None
    if tries:
        from fusionscope.advise.recipes.trying import Compilation
        from fusionscope.advise.suggest import suggester

        compilation = Compilation(python) if compiles else None
        suggest = suggester(selection, is_limited=not everything, compilation=compilation)
    explanation = explain(
        open_dump(dump),
        selection,
        progress=lambda modules: show_progress(modules, "Explaining"),
        suggest=suggest,
    )
    limit = None if everything else top
    pairs = everything or selection.picks_pairs
    write_report(
        "explain",
        explanation,
        format_name,
        output,
        explanation.problems,
        markdown=lambda: to_markdown(explanation, top=limit, pairs=pairs),
        text=lambda console: print_explanation(explanation, console, top=limit, pairs=pairs),
    )


def _ends(pair: str | None) -> tuple[str | None, str | None]:
    if pair is None:
        return None, None
    producer, arrow, consumer = (part.strip() for part in pair.partition("->"))
    if not (producer and arrow and consumer):
        raise UnusableInput(f"--pair {quoted(pair)}: expected 'PRODUCER -> CONSUMER'")
    return producer, consumer
