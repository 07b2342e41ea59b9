"""``fusionscope explain DUMP``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusionscope.cli import draw, experiment, trying
from fusionscope.cli.completion import complete_rule
from fusionscope.cli.draw import FIGURES
from fusionscope.cli.old_spellings import note_old_spelling, old_option, old_values
from fusionscope.cli.output import (
    InputFile,
    cache_option,
    device_option,
    jobs_option,
    output_option,
    python_option,
    read_changed_rules,
    rules_option,
    write_report,
    write_text,
)
from fusionscope.cli.progress import show_progress
from fusionscope.cli.selecting import (
    CONDITIONS,
    OUTCOMES,
    PARTS,
    SORTS,
    Breakdown,
    by_option,
    profile_directory,
    read_steps,
    show_option,
    where_option,
)
from fusionscope.cli.streams import show_problem
from fusionscope.errors import UnusableInput, quoted
from fusionscope.facts.pair_names import read_pair

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fusionscope.dump.device import Device
    from fusionscope.dump.profile import Profile
    from fusionscope.explain import Explanation, Selection
    from fusionscope.explain.explain import CompileResources
    from fusionscope.rules.changes import Changes
    from fusionscope.system.cache import Cache
    from fusionscope.words.section import Section

_TOP = 5  # entries of a list, unless the user sets a number
_FORMATS = ("text", "json", "markdown", "remarks")
_CHANGES = ("set", "disable", "allow", "forbid")


@click.command(name="explain")
@click.argument("dump", type=click.Path(path_type=Path))
@click.option(
    "--pair", metavar="'P -> C'", help="Only these pairs: names or opcodes; * and ? match."
)
@click.option("--source", metavar="FILE[:LINE]", help="Only pairs from this source line.")
@click.option(
    "--reason",
    metavar="ID",
    shell_complete=complete_rule,
    help="Only pairs refused for this reason.",
)
@where_option
@click.option("--kernel", metavar="GLOB", help="Show these kernels of the final module.")
@by_option
@click.option("--module", metavar="GLOB", help="Only these modules, by name or number.")
@show_option
@click.option(
    "--steps",
    multiple=True,
    metavar="LOOP=N",
    help="Count N steps of a loop whose number of steps the compiler does not know; repeatable.",
)
@rules_option
@device_option
@click.option(
    "--try/--no-try", "tries", default=True, help="Test candidate changes; suggest those that help."
)
@click.option(
    "--compile",
    "compiles",
    is_flag=True,
    help="Compile the program with what could help, and time it if its device is present.",
)
@python_option
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    help="Show the whole report, each list with at most N entries.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show the whole report of all modules, unabridged; try changes however long it takes.",
)
@cache_option
@jobs_option
@click.option(
    "--format",
    "format_name",
    type=click.Choice((*_FORMATS, *FIGURES)),
    metavar="|".join(_FORMATS),
    default="text",
    show_default=True,
    help="Output format.",
)
@output_option
@old_option("--op", "--where op=OPCODE")
@old_option("--computation", "--where computation=GLOB")
@old_option("--outcome", "--where outcome=OUTCOME", type=click.Choice(OUTCOMES))
@old_option("--op-name", "--where op-name=GLOB")
@old_option("--sort", "--by KIND,SORT", type=click.Choice(SORTS))
@old_option("--depth", "--by KIND,LEVELS", type=click.IntRange(1, 1000))
@old_option("--movements", "--show movements", is_flag=True)
@old_option("--resources", "--show resources", is_flag=True)
@old_option("--profile", "--show profile=DIR", type=click.Path(path_type=Path))
@old_option("--set", "fusionscope what-if DUMP --set ID.NAME=N", multiple=True)
@old_option("--disable", "fusionscope what-if DUMP --disable ID", multiple=True)
@old_option("--allow", "fusionscope what-if DUMP --allow 'P -> C'", multiple=True)
@old_option("--forbid", "fusionscope what-if DUMP --forbid 'P -> C'", multiple=True)
@old_option("--plan", "fusionscope what-if DUMP --plan FILE", type=InputFile())
@old_option("--experiment", "fusionscope experiment DUMP 'P -> C'")
@old_option("--radius", "fusionscope draw DUMP KERNEL --radius N", type=click.IntRange(0, 20))
def command(
    dump: Path,
    pair: str | None,
    source: str | None,
    reason: str | None,
    where: dict[str, str],
    kernel: str | None,
    by: Breakdown,
    module: str | None,
    show: dict[str, str],
    steps: tuple[str, ...],
    rules: str | None,
    device: Device | None,
    top: int | None,
    tries: bool,
    compiles: bool,
    python: str,
    everything: bool,
    no_cache: bool,
    jobs: int,
    format_name: str,
    output: Path | None,
) -> int:
    """Show which operations were fused into one kernel, and why (not).

    DUMP is a directory that XLA wrote with --xla_dump_to, the output that it printed with
    --xla_dump_to=-, or a single HLO file. Reasons come from the compiler's own records in the dump
    (PriorityFusion writes one for GPUs, --xla_dump_fusion_visualization one for every backend) and,
    for CPUs and GPUs, from a replay of its rules. --device names the GPU if DUMP does not describe
    it; if DUMP does, explain also shows what would be fused on the named GPU. Results are kept for
    the next question about DUMP (fusionscope cache).

    \b
    Examples:
      fusionscope explain dump_dir/
      fusionscope explain dump_dir/ --pair 'exponential -> reduce'
      fusionscope explain dump_dir/ --source model.py:42
      fusionscope explain dump_dir/ --reason pf-negative --top 20
      fusionscope explain dump_dir/ --where op=concatenate --where outcome=not-fused
      fusionscope explain dump_dir/ --by scope
      fusionscope explain dump_dir/ --by stack,bytes,3 --where op-name='*attention*'
      fusionscope explain dump_dir/ --kernel loop_add_fusion
      fusionscope explain dump_dir/ --show movements --show resources
      fusionscope explain dump_dir/ --show resources --compile
      fusionscope explain dump_dir/ --show profile=trace_dir/
      fusionscope explain dump_dir/ --device b200
      fusionscope explain dump_dir/ --steps while.12=20
      fusionscope explain dump_dir/ --compile
      fusionscope explain dump_dir/ --format json --output explanation.json
      fusionscope explain dump_dir/ --format remarks --output fusions.opt.yaml
    """
    from fusionscope.dump import open_dump
    from fusionscope.dump.cache import DumpCache, user_cache
    from fusionscope.explain import Selection, explain, sheets
    from fusionscope.facts.result import Grouping, SortedBy
    from fusionscope.words.section import Section, lines

    old = old_values()
    if "experiment" in old:
        return _invoke(
            experiment.command,
            dump=dump,
            pair=old["experiment"],
            module=module,
            python=python,
            top=top or _TOP,
            no_cache=no_cache,
            format_name=format_name,
            output=output,
        )
    if format_name in FIGURES:
        return _draw(dump, kernel, module, no_cache, format_name, output)
    where, show, by = _with_old(where, show, by, old)
    producer, consumer = read_pair(pair, "--pair")
    selection = Selection(
        module=module,
        computation=where.get("computation"),
        producer=producer,
        consumer=consumer,
        opcode=where.get("op"),
        source=source,
        reason=reason,
        outcome=where.get("outcome"),
        op_name=where.get("op-name"),
        kernel=kernel,
        by=Grouping(by.grouping) if by.grouping is not None else None,
        sorted_by=SortedBy(by.sort) if by.sort is not None else None,
        all_modules=everything,
        in_full=everything,
        movements="movements" in show,
        resources="resources" in show,
        profile=_read_profile(profile_directory(show)),
        changes=_old_changes(old),
        rules=rules,
        device=device,
        compiler=f"{python} {_last_installation()}",
    )
    is_whole = everything or top is not None or selection.movements or selection.resources
    is_first = not (is_whole or selection.by or selection.picks_pairs or kernel is not None)
    if is_first and format_name == "text":  # text output shows only one module
        selection = replace(selection, most_modules=1)
    suggest = None
    if tries and selection.by is None:  # which shows no suggestions
        suggest = trying.tries(selection, python, compiles=compiles)
    answers = None if no_cache else user_cache()
    compile_resources = None
    if selection.resources and compiles:
        compile_resources = _resource_compiler(selection, python, answers, tries=tries)
    time_run = trying.times_run(python) if tries and compiles else None
    opened = open_dump(dump).with_steps(dict(map(read_steps, steps)))
    cache = DumpCache(opened, None if compiles else answers)
    with show_progress() as progress:
        explanation = explain(
            opened,
            selection,
            jobs=jobs,
            progress=progress,
            suggest=suggest,
            compile_resources=compile_resources,
            time_run=time_run,
            cache=cache,
        )
    is_unmatched = _is_unmatched(explanation, selection)
    limit = None if everything else top or _TOP
    if format_name == "remarks":
        from fusionscope.report.remarks import to_remarks

        for problem in explanation.problems:
            show_problem(problem)
        write_text(to_remarks(explanation), output)
        return 1 if is_unmatched else 0
    if is_unmatched:
        nothing = lines([sheets.unmatched(explanation, _words(selection))])
        sections = iter([Section(blocks=(nothing,), is_heading=True)])
    elif is_first and format_name == "text":
        sections = sheets.screen(explanation)
    else:
        of_tpu = any(facts.backend == "tpu" for facts in explanation.modules)
        if is_whole or (selection.picks_pairs and of_tpu):
            from fusionscope.sketch.offers import with_sketches

            explanation = with_sketches(opened, explanation, limit)
        sections = _sections(explanation, selection, by.depth, limit)

    write_report("explain", explanation, format_name, output, explanation.problems, sections)
    return 1 if is_unmatched else 0


def _draw(
    dump: Path,
    kernel: str | None,
    module: str | None,
    no_cache: bool,
    format_name: str,
    output: Path | None,
) -> int:
    note_old_spelling(f"--format {format_name}", "fusionscope draw DUMP KERNEL")
    if kernel is None:
        raise UnusableInput(f"--format {format_name} draws kernels: name them with --kernel")
    return _invoke(
        draw.command,
        dump=dump,
        kernel=kernel,
        module=module,
        no_cache=no_cache,
        format_name=format_name,
        output=output,
        **{name: value for name, value in old_values().items() if name == "radius"},
    )


def _invoke(command: click.Command, **arguments: Any) -> int:
    """Return the exit status of another command, which has its defaults for the rest."""
    status: int = click.get_current_context().invoke(command, **arguments)
    return status


def _with_old(
    where: dict[str, str], show: dict[str, str], by: Breakdown, old: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str], Breakdown]:
    """Return the options with the values of those of the last release."""
    names = {condition: condition.replace("-", "_") for condition in CONDITIONS}
    where = where | {key: old[name] for key, name in names.items() if name in old}
    show = show | {part: str(old[part]) for part in PARTS if part in old}
    return where, show, by._replace(**{k: old[k] for k in ("sort", "depth") if k in old})


def _old_changes(old: Mapping[str, Any]) -> Changes | None:
    sets, disable, allow, forbid = (old.get(name, ()) for name in _CHANGES)
    return read_changed_rules(sets, disable, allow, forbid, old.get("plan"))


def _resource_compiler(
    selection: Selection, python: str, cache: Cache | None, *, tries: bool
) -> CompileResources:
    """Return the function that compiles for PTX and, if it ``tries``, so that kernels spill less;
    answers of ptxas are looked up in ``cache``.
    """
    from fusionscope.advise.recipes.trying import Compilation
    from fusionscope.advise.spills import compile_resources

    return partial(compile_resources, Compilation(python), cache, selection.device, tries)


def _last_installation() -> int:
    """Return when a package was last installed here or removed, in nanoseconds."""
    try:
        return Path(click.__file__).parents[1].stat().st_mtime_ns
    except OSError:
        return 0


def _sections(
    explanation: Explanation, selection: Selection, depth: int, limit: int | None
) -> Iterator[Section]:
    """Return the parts of the report that were asked for, each list with ``limit`` entries."""
    from fusionscope.explain import sheets

    if selection.kernel is not None:
        return sheets.kernel_pages(explanation, limit)
    if selection.by is not None:
        return sheets.breakdowns(explanation, depth, limit)
    if selection.picks_pairs:
        return sheets.selected(explanation, limit)
    return sheets.report(explanation, limit, pairs=selection.in_full)


def _is_unmatched(explanation: Explanation, selection: Selection) -> bool:
    """Return whether nothing matches the request."""
    modules = explanation.modules
    if selection.kernel is not None:
        return not any(module.kernel_pages for module in modules)
    if selection.by is not None and selection.op_name is not None:
        return not any(module.breakdown and module.breakdown.tree.launches for module in modules)
    return selection.picks_pairs and not any(module.pairs for module in modules)


def _words(selection: Selection) -> str:
    """Return the requested selection, as options."""
    ends = (selection.producer, selection.consumer)
    options = (
        ("--pair", " -> ".join(end or "*" for end in ends) if any(ends) else None),
        ("--source", selection.source),
        ("--reason", selection.reason),
        ("--where op", selection.opcode),
        ("--where computation", selection.computation),
        ("--where outcome", selection.outcome),
        ("--where op-name", selection.op_name),
        ("--kernel", selection.kernel),
    )
    return " ".join(
        f"{option}{'=' if ' ' in option else ' '}{quoted(value)}"
        for option, value in options
        if value is not None
    )


def _read_profile(path: Path | None) -> Profile | None:
    if path is None:
        return None
    from fusionscope.dump.profile import read_profile  # rarely requested

    return read_profile(path)
