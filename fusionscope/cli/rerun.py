"""``fusionscope rerun DUMP``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fusionscope.cli.completion import complete_device, complete_recipe
from fusionscope.cli.old_spellings import old_option, old_values
from fusionscope.cli.output import (
    InputFile,
    changes_options,
    compiling_options,
    running_options,
    top_option,
    write_report,
    write_text,
)
from fusionscope.cli.progress import show_progress
from fusionscope.errors import UnusableInput

if TYPE_CHECKING:
    from fusionscope.dump import DumpedModule
    from fusionscope.hlo import Module
    from fusionscope.hlo.shape import Shape
    from fusionscope.rerun.trial import Tried, Variant
    from fusionscope.rules.plan_files import PlanFile

_SECONDS = 2.0
_NOTHING = (
    "nothing to try, or several things at once: expected --rest xla or off, changed rules "
    "(--set, --disable, --allow, --forbid, --plan), edits (--recipe), plan files (--variant), or "
    "flags (--flag)"
)


@click.command(name="rerun")
@click.argument("dump", required=False, type=click.Path(path_type=Path))
@click.option("--module", metavar="GLOB", help="The module, by name or number.")
@click.option(
    "--self-test",
    "is_self_test",
    is_flag=True,
    help="Try everything that rerun needs on --device, with small programs, and print what held.",
)
@click.option(
    "--device",
    metavar="NAME|FILE",
    shell_complete=complete_device,
    help="The device of --self-test: cpu, gpu, or one that is absent, such as h100.",
)
@changes_options
@click.option(
    "--recipe",
    "spellings",
    metavar="ID",
    multiple=True,
    shell_complete=complete_recipe,
    help="Compile the program after this edit (`fusionscope recipes` lists them), with a limit as "
    "in unroll-loop,times=8; repeatable, in the order of the list.",
)
@click.option(
    "--variant",
    "files",
    metavar="FILE",
    multiple=True,
    type=InputFile(),
    help="Try this plan file, side by side with others; repeatable.",
)
@click.option(
    "--rest",
    "rest_name",
    type=click.Choice(["rules", "xla", "off"]),
    default="rules",
    show_default=True,
    help="All other pairs: as the replayed rules decide, as the compiler decides, or unfused. "
    "Without changes, xla tries the compiler's own plan, as a check, and off no fusion at all.",
)
@old_option("--replay", "--rest xla", is_flag=True)
@old_option("--no-fusion", "--rest off", is_flag=True)
@click.option(
    "--run/--no-run", "runs", default=True, help="Run the program if its device is present."
)
@running_options
@click.option(
    "--seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="How long to time the runs at most.  [default: 2, or as long as a verdict needs]",
)
@compiling_options(
    "fusionscope-rerun",
    "Where to write the new dump; each variant gets a subdirectory. If the default is in use, it "
    "gets a number.",
    picks_free=True,
)
@top_option
def command(
    dump: Path | None,
    module: str | None,
    is_self_test: bool,
    device: str | None,
    set_: tuple[str, ...],
    disable: tuple[str, ...],
    allow: tuple[str, ...],
    forbid: tuple[str, ...],
    plan: Path | None,
    spellings: tuple[str, ...],
    files: tuple[Path, ...],
    rest_name: str,
    runs: bool,
    inputs: Path | None,
    seed: int,
    seconds: float | None,
    flags: list[str],
    output: Path,
    python: str,
    limit_s: float,
    top: int,
    format_name: str,
) -> int:
    """Recompile a dumped program with the fusions that changed rules make.

    DUMP is a dump for a CPU or an NVIDIA GPU with all stages, as capture makes it; the GPU need not
    be present. rerun replays the changed rules and makes the real compiler use the resulting
    fusions instead of its own. It looks up each change in the new final module, and compares that
    module with the plan and with the prediction of explain. What cannot be done is refused, with
    the rule, before compiling. If the device is present,
    it runs the program both ways on the same inputs, compares the results, and times the runs in
    turns. The exit code is 1 if the result is not as planned, the compiler crashed, or the numbers
    differ.

    \b
    Examples:
      fusionscope rerun dump_dir/ --rest xla
      fusionscope rerun dump_dir/ --allow 'concatenate* -> *'
      fusionscope rerun dump_dir/ --forbid 'exponential -> reduce' --output without
      fusionscope rerun dump_dir/ --set cpu-max-reductions.limit=12 --disable cpu-code-dup
      fusionscope rerun dump_dir/ --allow 'tanh -> dot' --rest xla
      fusionscope rerun dump_dir/ --variant one.toml --variant other.toml --seconds 10
      fusionscope rerun dump_dir/ --flag xla_cpu_enable_fast_math=true
      fusionscope rerun dump_dir/ --recipe store-narrow --recipe unroll-loop,times=8
      fusionscope rerun dump_dir/ --rest off
      fusionscope rerun --self-test --device gpu
    """
    from fusionscope.advise.recipes.catalogue import read_recipe
    from fusionscope.advise.recipes.rewriting import rewrite
    from fusionscope.dump import open_dump
    from fusionscope.explain.modules import pick_module
    from fusionscope.report.rerun import sections_of
    from fusionscope.rerun.plans import Rest, own_plan
    from fusionscope.rerun.rewritten import compile_file
    from fusionscope.rerun.trial import Variant, make_variant, try_variants
    from fusionscope.rules.changes import read_changes
    from fusionscope.rules.plan_files import PlanFile, read_plan

    if is_self_test or device is not None or dump is None:
        if not is_self_test:
            raise UnusableInput("expected a DUMP, or --self-test with --device")
        if dump is not None:
            raise UnusableInput("--self-test has its own programs, expected no DUMP")
        timed = _SECONDS if seconds is None else seconds
        return _self_test(device or "cpu", output, python, limit_s, timed, format_name)
    options_changes = read_changes(set_, disable, allow, forbid)
    changed = read_plan(plan, takes_program=True) if plan is not None else PlanFile(options_changes)
    changes = changed.changes | options_changes if plan is not None else options_changes
    plan_files = [read_plan(file, takes_program=True) for file in files]
    recipes = list(map(read_recipe, spellings))
    if recipes and (changes or changed.program):
        raise UnusableInput("--recipe changes the program, and rules are for the program as it is")
    is_changed = bool(changes or changed.program or recipes)
    is_own, is_none = _asks_for_all(rest_name, is_plain=not (is_changed or files))
    if is_own + is_none + is_changed > 1 or not (is_own or is_none or is_changed or files or flags):
        raise UnusableInput(_NOTHING)
    opened = open_dump(dump)
    picked_module = pick_module(opened, _one_name(module, [changed, *plan_files]))
    remainder = Rest(rest_name)
    with ExitStack() as stack:
        progress = stack.enter_context(show_progress())

        def rewritten(file: PlanFile) -> DumpedModule | None:
            if file.program is None:
                return None
            progress(f"compiling {file.program}")
            scratch = Path(stack.enter_context(TemporaryDirectory())) / "dump"
            return compile_file(
                picked_module, file.program, scratch, python=python, limit_s=limit_s
            )

        variants = []
        if is_own:
            variants.append(Variant("replay", own_plan(picked_module), tuple(flags)))
        elif recipes:
            program, words = rewrite(picked_module, recipes), " and ".join(spellings)
            variants.append(Variant("changed", None, tuple(flags), program=program, words=words))
        elif is_none or is_changed:
            rest_kept = Rest.OFF if is_none else remainder
            of = rewritten(changed)
            variants.append(
                make_variant(picked_module, "changed", changes, rest_kept, tuple(flags), of)
            )
        for file, plan_file in zip(files, plan_files, strict=True):
            name, of = _unused(file.stem, variants), rewritten(plan_file)
            variants.append(
                make_variant(picked_module, name, plan_file.changes, remainder, tuple(flags), of)
            )
        is_planned = not is_own and any(variant.program is None for variant in variants)
        baseline = own_plan(picked_module) if is_planned else None
        if not variants:
            variants.append(Variant("flags", None, tuple(flags)))
        trial = try_variants(
            picked_module,
            variants,
            output,
            baseline=baseline,
            runs=runs,
            inputs=inputs,
            seed=seed,
            seconds=_SECONDS if seconds is None else seconds,
            is_strict=seconds is not None,
            python=python,
            limit_s=limit_s,
            progress=progress,
        )
    trial = replace(
        trial,
        variants=tuple(_with_plan_file(attempt, picked_module, dump) for attempt in trial.variants),
    )
    write_report(
        "rerun",
        trial,
        format_name,
        None,
        opened.unreported_problems(),
        sections_of(trial, top),
    )
    return 0 if all(variant.holds for variant in trial.variants) else 1


def _with_plan_file(attempt: Tried, module: DumpedModule, dump: Path) -> Tried:
    """Return an attempt with a plan file beside its dump, if ``apply`` can use one: it is another
    program, for a CPU, with the same arguments.
    """
    from fusionscope.hlo import to_text
    from fusionscope.rerun.programs import find_program
    from fusionscope.rules.changes import NO_CHANGES
    from fusionscope.rules.plan_files import PlanFile, write_plan

    def arguments(program: Module) -> list[Shape]:
        return [parameter.shape for parameter in program.entry.parameters]

    program, captured = attempt.rerun.injection.program, attempt.rerun.captured
    if program is None or captured is None or module.backend != "cpu" or not attempt.holds:
        return attempt
    if arguments(program) != arguments(find_program(module)):
        return attempt
    file = captured.directory / "plan.toml"
    write_text(to_text(program), file.with_suffix(".hlo"))
    plan = PlanFile(NO_CHANGES, module.name, dump, file.with_suffix(".hlo"))
    write_text(write_plan(plan, file), file)
    return replace(attempt, plan_file=file)


def _asks_for_all(rest: str, *, is_plain: bool) -> tuple[bool, bool]:
    """Return whether all pairs are to be as the compiler decides, or all unfused."""
    old = old_values()
    context = click.get_current_context()
    is_given = context.get_parameter_source("rest_name") is ParameterSource.COMMANDLINE
    is_all = is_plain and is_given
    return "replay" in old or (is_all and rest == "xla"), "no_fusion" in old or (
        is_all and rest == "off"
    )


def _self_test(
    device: str, output: Path, python: str, limit_s: float, seconds: float, format_name: str
) -> int:
    from fusionscope.capture.targets import read_target
    from fusionscope.report.self_test import sections_of
    from fusionscope.study.self_test import self_test

    with show_progress() as progress:
        result = self_test(
            read_target(device),
            output,
            python=python,
            limit_s=limit_s,
            seconds=seconds,
            progress=progress,
        )
    write_report(
        "self_test",
        result,
        format_name,
        None,
        (),
        sections_of(result),
    )
    return 0 if result.holds else 1


def _one_name(module: str | None, plans: list[PlanFile]) -> str | None:
    """Return the module that options and plans name. Raises ``UnusableInput`` if they differ."""
    names = {plan.module for plan in plans if plan.module is not None}
    if module is None and len(names) == 1:
        return names.pop()
    if module is not None and names <= {module}:
        return module
    if names:
        raise UnusableInput(
            f"the plans are for {', '.join(sorted(names))}, expected one module"
            + (f", and {module} was requested" if module else "")
        )
    return module


def _unused(name: str, variants: list[Variant]) -> str:
    names_taken = {variant.name for variant in variants}
    return name if name not in names_taken else _unused(f"{name}-2", variants)
