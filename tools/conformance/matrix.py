"""Compiles a fixed set of programs with each release of jaxlib, and says where its rules end.

python -m conformance matrix OUT 0.9.2=PATH 0.12=PATH      (a Python with jax for each release)

For each release and target: how the dumps are recognised, the rules taken, and how many plans have
the compiler's kernels. Of each program the first pass that differs is a problem: the rules of the
pass, what the replay has, and what the compiler has. OUT/RELEASE/TARGET/PROGRAM is a dump, which is
made once.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from conformance.compiling import version_of
from conformance.findings import Finding, counted, note, problem
from conformance.make_fleet import Run, Variant, make
from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.rules.messages import rule_of
from fusionscope.verify.verification import PassVerification, Verification, verify

PROGRAMS = (
    "attention", "concatenate", "convolution", "dense", "elementwise", "loop", "projections",
    "reductions", "softmax", "updates", "control.nested", "dots.attention_gradient",
    "gradients.layer_norm", "gradients.layers", "numbers.half", "numbers.int4",
    "numeric_types.block_scaled", "recurrent.gated_layers", "updates.scaled_around",
    "windows.resize",
)  # fmt: skip
RECORDED = Variant("", (), record=True)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("out", type=Path)
    parser.add_argument("releases", nargs="+", metavar="RELEASE=PYTHON")
    parser.add_argument("--targets", default="cpu,h100", metavar="NAME,NAME")


def findings(options: Namespace) -> Iterator[Finding]:
    for entry in options.releases:
        release, _, python = entry.partition("=")
        jaxlib = version_of(python)
        for target in options.targets.split(","):
            verified: list[Verification] = []
            for program in PROGRAMS:
                folder = (options.out / release / target / program).resolve()
                if not folder.is_dir():
                    make(Run(program, target, RECORDED), folder, python, jaxlib)
                try:
                    dump = open_dump(folder)
                    verification = verify(dump, dump.modules)
                except UnusableInput as error:
                    yield problem("not compared", f"{release} {target} {program}: {error}")
                    continue
                verified.append(verification)
                yield _first_difference(f"{release} {target} {program}", verification)
            yield from _summary(f"{release} {target}", verified)


def _first_difference(place: str, verification: Verification) -> Finding:
    for run in verification.passes:
        agree = run.decisions.agreeing == run.decisions.compared
        if not run.has_same_kernels or not agree:
            return problem("differs", f"{place}: {run.pass_name}, {run.book}\n{_sides(run)}")
    return counted("agrees", f"{place}: agrees")


def _sides(run: PassVerification) -> str:
    """Both sides of the first decision or, in passes without a record, of the first instruction
    that differs.
    """
    if run.disagreement is not None:
        sides = run.disagreement.ours, run.disagreement.theirs
        rules = [rule_of(words.rpartition(": ")[2]) for words in sides]
        return (
            f"  replay   {sides[0] or 'nothing'} ({rules[0]})\n"
            f"  compiler {sides[1] or 'nothing'} ({rules[1]})"
        )
    divergence = run.divergence
    if divergence is None:
        return f"  {run.decisions.agreeing} of {run.decisions.compared} decisions, in another order"
    return (
        f"  {divergence.what} in {divergence.computation}\n"
        f"  replay   {divergence.ours}\n"
        f"  compiler {divergence.theirs}"
    )


def _summary(place: str, verified: list[Verification]) -> Iterator[Finding]:
    modules = [module for verification in verified for module in verification.modules]
    passes = [run for verification in verified for run in verification.passes]
    choices = Counter(
        f"{module.rules.version}, {module.rules.name}"
        f"{'' if module.rules.are_checked else ', guessed'}"
        for module in modules
    )
    for words, count in choices.most_common():
        yield note(f"{place}: {count} of {len(modules)} modules of {words}")
    same = sum(run.has_same_kernels for run in passes)
    agreeing = sum(run.decisions.agreeing for run in passes)
    compared = sum(run.decisions.compared for run in passes)
    yield note(
        f"{place}: {same} of {len(passes)} plans with the same kernels, {agreeing:,} of "
        f"{compared:,} decisions"
    )
