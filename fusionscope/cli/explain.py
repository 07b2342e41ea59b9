"""``fusionscope explain DUMP``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusionscope.cli.completion import complete_rule
from fusionscope.cli.output import (
    cache_option,
    changes_options,
    device_option,
    format_options,
    jobs_option,
    python_option,
    resources_option,
    rules_option,
    write_report,
    write_text,
)
from fusionscope.cli.progress import show_progress
from fusionscope.errors import UnusableInput, quoted
from fusionscope.system.files import write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from fusionscope.dump import Dump, DumpedModule
    from fusionscope.dump.device import Device
    from fusionscope.dump.profile import Profile
    from fusionscope.explain import Explanation, ModuleFacts, Selection
    from fusionscope.explain.explain import CompileResources, Suggest
    from fusionscope.facts.suggestions import Suggestions
    from fusionscope.page.kernel_neighbourhood import Neighbourhood
    from fusionscope.progress import Progress
    from fusionscope.rules.changes import Changes
    from fusionscope.system.cache import Cache
    from fusionscope.words.section import Section

_LONGEST_S = 60.0  # for one program of an experiment
_TOP = 5  # entries of a list, unless the user sets a number
_FIGURES = ("svg", "png", "dot", "graphml", "json-graph")


@click.command(name="explain")
@click.argument("dump", type=click.Path(path_type=Path))
@click.option(
    "--pair", metavar="'P -> C'", help="Only these pairs: names or opcodes; * and ? match."
)
@click.option("--op", "opcode", metavar="OPCODE", help="Only pairs that contain this operation.")
@click.option("--source", metavar="FILE[:LINE]", help="Only pairs from this source line.")
@click.option("--computation", metavar="GLOB", help="Only pairs in these computations.")
@click.option(
    "--reason",
    metavar="ID",
    shell_complete=complete_rule,
    help="Only pairs refused for this reason.",
)
@click.option(
    "--outcome",
    type=click.Choice(["fused", "duplicated", "not-fused", "gone"]),
    help="Only pairs with this outcome.",
)
@click.option("--op-name", metavar="GLOB", help="Only what has such a name in the program.")
@click.option("--kernel", metavar="GLOB", help="Show these kernels of the final module.")
@click.option(
    "--by",
    type=click.Choice(["scope", "stack", "file", "kind"]),
    help="Show where launches, bytes and time go: by scope, call stack, source file, or kind.",
)
@click.option(
    "--sort", type=click.Choice(["time", "bytes", "launches"]), help="What to sort that by."
)
@click.option(
    "--depth",
    default=4,
    show_default=True,
    type=click.IntRange(1, 1000),
    metavar="N",
    help="How deep to show that.",
)
@click.option("--module", metavar="GLOB", help="Only these modules, by name or number.")
@click.option(
    "--movements", is_flag=True, help="Also show why copies, transposes and converts are there."
)
@resources_option
@click.option(
    "--profile",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Show the times that jax.profiler.trace(DIR) recorded beside those of the model.",
)
@click.option(
    "--steps",
    multiple=True,
    metavar="LOOP=N",
    help="Count N steps of a loop whose number of steps the compiler does not know; repeatable.",
)
@rules_option
@device_option
@changes_options
@click.option(
    "--try/--no-try", "tries", default=True, help="Try what could help, and show what does."
)
@click.option(
    "--compile",
    "compiles",
    is_flag=True,
    help="Compile the program with what could help, and time it if its device is present.",
)
@click.option(
    "--experiment",
    metavar="'P -> C'|unknown",
    help="Ask the compiler what must change for these refused pairs, or those without a reason, to "
    "be fused.",
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
    "--radius",
    default=1,
    show_default=True,
    type=click.IntRange(0, 20),
    metavar="N",
    help="How many kernels a figure shows before and after those of --kernel.",
)
@format_options("text", "json", "markdown", *_FIGURES)
def command(
    dump: Path,
    pair: str | None,
    opcode: str | None,
    source: str | None,
    computation: str | None,
    reason: str | None,
    outcome: str | None,
    op_name: str | None,
    kernel: str | None,
    by: str | None,
    sort: str | None,
    depth: int,
    module: str | None,
    movements: bool,
    resources: bool,
    profile: Path | None,
    steps: tuple[str, ...],
    rules: str | None,
    device: Device | None,
    set_: tuple[str, ...],
    disable: tuple[str, ...],
    allow: tuple[str, ...],
    forbid: tuple[str, ...],
    plan: Path | None,
    top: int | None,
    tries: bool,
    compiles: bool,
    experiment: str | None,
    python: str,
    everything: bool,
    no_cache: bool,
    jobs: int,
    radius: int,
    format_name: str,
    output: Path | None,
) -> int:
    """Show which operations were fused into one kernel, and why (not).

    DUMP is a directory that XLA wrote with --xla_dump_to, the output that it printed with
    --xla_dump_to=-, or a single HLO file. Reasons come from the compiler's own records in the dump
    (PriorityFusion writes one for GPUs, --xla_dump_fusion_visualization one for every backend) and,
    for CPUs and GPUs, from a replay of its rules. If you change rules, explain also shows what the
    changes would do. --device names the GPU if DUMP does not describe it; if DUMP does, explain
    also shows what would be fused on the named GPU. Results are kept for the next question about
    DUMP (fusionscope cache).

    \b
    Examples:
      fusionscope explain dump_dir/
      fusionscope explain dump_dir/ --pair 'exponential -> reduce'
      fusionscope explain dump_dir/ --source model.py:42
      fusionscope explain dump_dir/ --reason pf-negative --top 20
      fusionscope explain dump_dir/ --set cpu-max-reductions.limit=12
      fusionscope explain dump_dir/ --allow 'concatenate* -> *' --disable cpu-code-dup
      fusionscope explain dump_dir/ --device b200
      fusionscope explain dump_dir/ --by scope --depth 3
      fusionscope explain dump_dir/ --by stack --sort bytes --op-name '*attention*'
      fusionscope explain dump_dir/ --kernel loop_add_fusion
      fusionscope explain dump_dir/ --kernel loop_add_fusion --format svg --output figure.svg
      fusionscope explain dump_dir/ --movements
      fusionscope explain dump_dir/ --resources
      fusionscope explain dump_dir/ --resources --compile
      fusionscope explain dump_dir/ --profile trace_dir/
      fusionscope explain dump_dir/ --steps while.12=20
      fusionscope explain dump_dir/ --compile
      fusionscope explain dump_dir/ --experiment 'multiply* -> pad*'
      fusionscope explain dump_dir/ --experiment unknown --top 20
      fusionscope explain dump_dir/ --format json --output explanation.json
    """
    from fusionscope.dump import open_dump
    from fusionscope.dump.cache import DumpCache, user_cache
    from fusionscope.explain import Selection, explain, sheets
    from fusionscope.facts.result import Grouping, SortedBy
    from fusionscope.words.markdown import to_markdown
    from fusionscope.words.terminal import print_sections
    from fusionscope.words.text import safe

    if format_name == "png" and output is None:
        raise UnusableInput("a bitmap is no text, expected --output FILE")
    if format_name in _FIGURES and kernel is None:
        raise UnusableInput(f"--format {format_name} draws kernels: name them with --kernel")
    if experiment is not None:
        return _experiment(dump, experiment, module, python, top, output, format_name, no_cache)
    producer, consumer = _ends(pair)
    selection = Selection(
        module=module,
        computation=computation,
        producer=producer,
        consumer=consumer,
        opcode=opcode,
        source=source,
        reason=reason,
        outcome=outcome,
        op_name=op_name,
        kernel=kernel,
        by=Grouping(by) if by is not None else None,
        sorted_by=SortedBy(sort) if sort is not None else None,
        all_modules=everything,
        in_full=everything,
        movements=movements,
        resources=resources,
        profile=_read_profile(profile),
        changes=_changes(set_, disable, allow, forbid, plan),
        rules=rules,
        device=device,
    )
    is_whole = everything or top is not None or movements or resources
    is_first = not (is_whole or by is not None or selection.picks_pairs or kernel is not None)
    if is_first and format_name == "text":  # text output shows only one module
        selection = replace(selection, most_modules=1)
    is_figure = format_name in _FIGURES
    suggest = None
    if tries and by is None and not is_figure:  # which shows no suggestions
        suggest = _suggester(selection, python if compiles else None)
    kept = None if no_cache else user_cache()
    compile_resources = (
        _resource_compiler(selection, python, kept, tries=tries) if resources and compiles else None
    )
    opened = open_dump(dump).with_steps(dict(map(_steps, steps)))
    cache = DumpCache(opened, None if compiles else kept)
    with show_progress() as progress:
        explanation = explain(
            opened,
            selection,
            jobs=jobs,
            progress=progress,
            suggest=suggest,
            compile_resources=compile_resources,
            cache=cache,
        )
    is_unmatched = _is_unmatched(explanation, selection)
    if is_figure and not is_unmatched:
        figure = _figure(opened, explanation, radius, format_name)
        if isinstance(figure, str):
            write_text(figure, output)
        elif output is not None:
            write_file(output, figure)
        return 0
    limit = None if everything else top or _TOP
    if is_first and format_name == "text":
        sections = sheets.screen(explanation)
    else:
        sections = _sections(explanation, selection, depth, limit)

    def show(console: Console) -> None:
        if is_unmatched:
            words = sheets.unmatched(explanation, _words(selection))
            console.print(safe(words), soft_wrap=True)
        else:
            print_sections(sections, console)

    write_report(
        "explain",
        explanation,
        "text" if is_figure else format_name,
        output,
        explanation.problems,
        markdown=lambda: "\n".join(to_markdown(sections)),
        text=show,
    )
    return 1 if is_unmatched else 0


def _steps(text: str) -> tuple[str, int]:
    """Return the name of a loop and its number of steps."""
    name, _, count = text.rpartition("=")
    if not name or not count.isdecimal():
        raise UnusableInput(f"--steps has {quoted(text)}, expected LOOP=N, such as while.12=20")
    return name.lstrip("%"), int(count)


def _experiment(
    dump: Path,
    wanted: str,
    module: str | None,
    python: str,
    top: int | None,
    output: Path | None,
    format_name: str,
    no_cache: bool,
) -> int:
    """Run experiments on pairs of one module."""
    from fusionscope.dump import open_dump
    from fusionscope.dump.cache import user_cache
    from fusionscope.experiments.experiments import UNKNOWN, run_experiments
    from fusionscope.explain.modules import pick_module
    from fusionscope.report.experiments import print_experiments

    if format_name not in ("text", "json"):
        raise UnusableInput(f"--experiment has no {format_name}, expected --format text or json")
    if wanted != UNKNOWN:
        _ends(wanted, "--experiment")
    opened = open_dump(dump)
    with show_progress() as progress:
        found = run_experiments(
            pick_module(opened, module),
            wanted,
            top=top or _TOP,
            python=python,
            limit_s=_LONGEST_S,
            kept=None if no_cache else user_cache(),
            progress=progress,
        )
    write_report(
        "experiments",
        found,
        format_name,
        output,
        opened.untold(),
        text=lambda console: print_experiments(found, console),
    )
    return 0


def _figure(dump: Dump, explanation: Explanation, radius: int, format_name: str) -> str | bytes:
    """Return the kernels that were asked for, of the first module that has any."""
    from fusionscope.page.fusion_graph import fusion_graph
    from fusionscope.page.kernel_neighbourhood import find_neighbourhood
    from fusionscope.page.report_facts import dumped
    from fusionscope.report import figures

    formats: dict[str, Callable[[Neighbourhood], str | bytes]] = {
        "svg": figures.to_svg,
        "png": figures.to_png,
        "dot": figures.to_dot,
        "graphml": figures.to_graphml,
        "json-graph": figures.to_json_graph,
    }
    facts = next(module for module in explanation.modules if module.kernel_pages)
    names = {page.kernel.name for page in facts.kernel_pages}
    with show_progress() as progress:
        graph = fusion_graph(dumped(dump, facts), progress=progress)
    return formats[format_name](find_neighbourhood(graph, facts, names, radius))


def _resource_compiler(
    selection: Selection, python: str, kept: Cache | None, *, tries: bool
) -> CompileResources:
    """Return the function that compiles for PTX and, if it ``tries``, so that kernels spill less;
    answers of ptxas are looked up in ``kept``.
    """
    from fusionscope.advise.recipes.trying import Compilation
    from fusionscope.advise.spills import compile_resources

    return partial(compile_resources, Compilation(python), kept, selection.device, tries)


def _suggester(selection: Selection, python: str | None) -> Suggest:
    """Return the function that tries changes; with ``python``, it compiles them too."""
    return partial(_suggest, selection, python)


def _suggest(
    selection: Selection,
    python: str | None,
    module: DumpedModule,
    facts: ModuleFacts,
    progress: Progress,
) -> Suggestions:
    from fusionscope.advise.recipes.trying import Compilation  # not if this was tried before
    from fusionscope.advise.suggest import suggester

    compilation = Compilation(python) if python is not None else None
    ask = suggester(selection, is_limited=not selection.in_full, compilation=compilation)
    return ask(module, facts, progress)


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
        return not any(each.breakdown and each.breakdown.tree.launches for each in modules)
    return selection.picks_pairs and not any(module.pairs for module in modules)


def _words(selection: Selection) -> str:
    """Return the requested selection, as options."""
    ends = (selection.producer, selection.consumer)
    asked = (
        ("--pair", " -> ".join(each or "*" for each in ends) if any(ends) else None),
        ("--op", selection.opcode),
        ("--source", selection.source),
        ("--computation", selection.computation),
        ("--reason", selection.reason),
        ("--outcome", selection.outcome),
        ("--op-name", selection.op_name),
        ("--kernel", selection.kernel),
    )
    return " ".join(f"{option} {quoted(value)}" for option, value in asked if value is not None)


def _read_profile(path: Path | None) -> Profile | None:
    if path is None:
        return None
    from fusionscope.dump.profile import read_profile  # rarely requested

    return read_profile(path)


def _changes(
    set_: tuple[str, ...],
    disable: tuple[str, ...],
    allow: tuple[str, ...],
    forbid: tuple[str, ...],
    plan: Path | None,
) -> Changes | None:
    if not (set_ or disable or allow or forbid or plan):
        return None
    from fusionscope.rules.changes import read_changes  # imports the rules
    from fusionscope.rules.plan_files import read_plan

    changes = read_changes(set_, disable, allow, forbid)
    return changes if plan is None else read_plan(plan).changes | changes


def _ends(pair: str | None, option: str = "--pair") -> tuple[str | None, str | None]:
    if pair is None:
        return None, None
    producer, arrow, consumer = (part.strip() for part in pair.partition("->"))
    if not (producer and arrow and consumer):
        raise UnusableInput(f"{option} {quoted(pair)}: expected 'PRODUCER -> CONSUMER'")
    return producer, consumer
