"""``fusionscope capture TARGET``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusionscope.cli.completion import complete_device
from fusionscope.cli.output import (
    arguments_option,
    as_flags,
    compiling_options,
    open_console,
    write_json,
)
from fusionscope.cli.progress import show_progress
from fusionscope.cli.streams import show_problem
from fusionscope.cli.trying import tries
from fusionscope.errors import UnusableInput, quoted
from fusionscope.progress import each_of

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.capture.capture import Captured
    from fusionscope.facts.result import ModuleFacts, TimeEstimate

_NAME = re.compile(r"\w[\w.-]*")


@click.command(name="capture")
@click.argument("program", metavar="TARGET")
@arguments_option
@click.option(
    "--device",
    "devices",
    metavar="NAME|FILE",
    shell_complete=complete_device,
    multiple=True,
    default=("cpu",),
    show_default=True,
    help="The target: cpu, gpu, h100, b200, tpu:v5e, … or a device description file; repeatable.",
)
@click.option(
    "--variant",
    "variants",
    metavar="'NAME: FLAGS'",
    multiple=True,
    help="An additional dump for each device, with these flags added; repeatable.",
)
@compiling_options(
    "fusionscope-dump", "Where to write the dump; several dumps get a subdirectory each."
)
@click.option(
    "--record-inputs",
    "records_inputs",
    is_flag=True,
    help="Keep the arrays of example_args beside the dump: rerun and tune run on them.",
)
@click.option(
    "--run",
    "runs_program",
    is_flag=True,
    help="Run the program too, and show the measured times of its kernels.",
)
@click.option("--no-explain", "is_silent", is_flag=True, help="Do not explain the dumps.")
def command(
    program: str,
    arguments: tuple[str, ...],
    devices: tuple[str, ...],
    flags: list[str],
    variants: tuple[str, ...],
    output: Path,
    python: str,
    limit_s: float,
    records_inputs: bool,
    runs_program: bool,
    is_silent: bool,
    format_name: str,
) -> int:
    """Compile a program, even for a device that is absent, and explain its dump.

    TARGET is a JAX or torch function (package.module:function or file.py:function), or a file of
    StableHLO (.mlir) or HLO (.hlo, .txt, .pb). The arguments of a function come from --arg, or
    else from the example_args of the function or of its module. The program is compiled in a
    separate process, with every flag that explain, diff and verify need. If the compiler crashes,
    the stages that it reached remain.

    \b
    Examples:
      fusionscope capture model.py:step --device h100
      fusionscope capture package.model:loss --arg 'f32[128,256]' --arg 'bf16[256]'
      fusionscope capture model.py:step --device h100 --device b200 --output dumps
      fusionscope capture model.py:step --run
      fusionscope capture step.mlir --device tpu:v5e
      fusionscope capture model.py:step --device a100 --flag xla_gpu_enable_triton_gemm=false
      fusionscope capture model.py:step --variant 'plain-dots: xla_gpu_enable_triton_gemm=false'
    """
    from fusionscope.capture.capture import Captures, capture
    from fusionscope.capture.targets import read_program, read_target
    from fusionscope.report.capture import Compiled, captured_section, comparison_section
    from fusionscope.words.terminal import print_sections

    read = read_program(program, arguments)
    runs = [
        (f"{target.name}+{name}" if name else target.name, target, [*flags, *more])
        for target in map(read_target, devices)
        for name, more in [("", []), *map(_read_variant, variants)]
    ]
    captures: list[tuple[str, Captured]] = []
    problems: list[UnusableInput] = []
    with show_progress() as progress:
        for (name, target, all_flags), _ in each_of(
            runs, lambda run: f"compiling for {run[0]}", progress
        ):
            try:
                captured = capture(
                    read,
                    target,
                    output / name if len(runs) > 1 else output,
                    flags=all_flags,
                    python=python,
                    limit_s=limit_s,
                    records_inputs=records_inputs,
                    runs=runs_program,
                )
                captures.append((name, captured))
            except UnusableInput as error:
                problems.append(error)
    if not captures:
        raise problems[0]
    for problem in problems:
        show_problem(str(problem))
    if format_name == "json":
        write_json("capture", Captures(tuple(captured for _, captured in captures)), None)
        return 2 if problems else 0
    with open_console(None) as console:
        compiled = []
        for name, captured in captures:
            is_explained = not is_silent and captured.has_stages
            print_sections([captured_section(captured, is_explained=is_explained)], console)
            if is_explained:
                facts, estimate = _explain(captured, python, console)
                compiled.append(Compiled(name, None if captured.problem else facts, estimate))
        if len(compiled) > 1:
            console.print()
            print_sections([comparison_section(compiled)], console)
    return 2 if problems else 0


def _read_variant(words: str) -> tuple[str, list[str]]:
    name, colon, flags = words.partition(":")
    if not (colon and flags.split() and _NAME.fullmatch(name)):
        raise UnusableInput(f"--variant {quoted(words)}: expected 'NAME: FLAG=VALUE ...'")
    return name, as_flags(flags.split())


def _explain(
    captured: Captured, python: str, console: Console
) -> tuple[ModuleFacts, TimeEstimate | None]:
    """Print the explanation of the one module in a dump."""
    from fusionscope.dump import open_dump
    from fusionscope.dump.profile import read_profile
    from fusionscope.explain import Selection, explain
    from fusionscope.explain.sheets import screen
    from fusionscope.facts.times import estimate_final
    from fusionscope.words.terminal import print_sections

    dump = open_dump(captured.directory)
    profile = read_profile(captured.profile) if captured.profile is not None else None
    selection = Selection(profile=profile)
    with show_progress() as progress:
        suggest = tries(selection, python)
        explanation = explain(dump, selection, suggest=suggest, progress=progress)
    for problem in explanation.problems:
        show_problem(problem)
    print_sections(screen(explanation), console)
    return explanation.modules[0], estimate_final(dump.modules[0])
