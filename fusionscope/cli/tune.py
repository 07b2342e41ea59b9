"""``fusionscope tune DUMP``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusionscope.cli.output import (
    format_option,
    python_option,
    running_options,
    top_option,
    write_report,
    write_text,
)
from fusionscope.cli.progress import show_progress

if TYPE_CHECKING:
    from fusionscope.tune.results import Best, Design


@click.command(name="tune")
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("--module", metavar="GLOB", help="The module, by name or number.")
@click.option(
    "--budget",
    "budget_s",
    metavar="SECONDS",
    default=120.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Time budget for the search, with what it takes to measure the best again.",
)
@running_options
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("fusionscope-plan.toml"),
    show_default=True,
    help="Where to write the best plan, if there is one.",
)
@python_option
@format_option("text", "json")
@top_option
def command(
    dump: Path,
    module: str | None,
    budget_s: float,
    inputs: Path | None,
    seed: int,
    output: Path,
    python: str,
    top: int,
    format_name: str,
) -> int:
    """Search for fusions that make a dumped program faster on the local device.

    tune unrolls loops and applies recipes, and changes the plan of the program and of the fastest
    rewritten ones: whole regions in one kernel, passes and rules left out, values kept, pairs
    fused, thresholds changed. It measures what replays find promising, combines what is faster and
    gives the right numbers, and measures the best again in another process. It writes the best
    plan for rerun, and for use in a program: with fusionscope.apply('fusionscope-plan.toml'). For a
    GPU that is absent, the compiler's cost model decides instead of measurements. A search that is
    killed leaves its fastest plan so far as OUTPUT.unconfirmed.toml. The exit code is 1 if nothing
    was faster.

    \b
    Examples:
      fusionscope tune dump_dir/
      fusionscope tune dump_dir/ --budget 600 --inputs batch.npz --output best.toml
      fusionscope rerun dump_dir/ --plan fusionscope-plan.toml
    """
    from fusionscope.dump import open_dump
    from fusionscope.explain.modules import pick_module
    from fusionscope.hlo import to_text
    from fusionscope.report.tuning import sections_of
    from fusionscope.rules.plan_files import PlanFile, write_plan
    from fusionscope.tune.search import tune

    opened = open_dump(dump)
    picked_module = pick_module(opened, module)

    unconfirmed = output.with_suffix(".unconfirmed.toml")  # what a search that is killed leaves

    def write(design: Design | Best, file: Path) -> None:
        program = None
        if design.program is not None:
            program = file.with_suffix(".hlo")
            write_text(to_text(design.program), program)
        write_text(
            write_plan(PlanFile(design.changes, picked_module.name, dump, program), file), file
        )

    with show_progress() as progress:
        tuning = tune(
            picked_module,
            budget_s=budget_s,
            journal=output,
            keep=lambda design: write(design, unconfirmed),
            inputs=inputs,
            seed=seed,
            python=python,
            progress=progress,
        )
    if tuning.best is not None:
        write(tuning.best, output)
    for file in (unconfirmed, unconfirmed.with_suffix(".hlo")):
        file.unlink(missing_ok=True)
    write_report(
        "tune",
        tuning,
        format_name,
        None,
        opened.unreported_problems(),
        sections_of(tuning, output, top),
    )
    return 0 if tuning.best is not None else 1
