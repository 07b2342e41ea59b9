"""Lets the CPU compiler take random plans and compares the numbers with those of its own.

A plan is a handful of random kernels: operations that read each other, some in several kernels, and
the rest by the rules, as the compiler likes, or not fused. A plan that cannot be is refused before
the compiler sees it; of what it took, every number has to be right. Exit code 1 where one is not.
"""

import random
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from conformance.findings import Finding, add_dumps, counted, note, problem
from fusionscope import UnusableInput
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.graph.buffers import walk_control_flow
from fusionscope.graph.mutable import MutableInstruction, MutableModule
from fusionscope.rerun.injection import Injection, inject
from fusionscope.rerun.plans import Plan, Rest, make_plan, own_plan, require_start
from fusionscope.rerun.running import Numbers, measure
from fusionscope.rules.changes import Changes

AT_ONCE = 10  # variants in one process
LEFT_OUT = {"call", "conditional", "get-tuple-element", "parameter", "tuple", "while"}


def random_kernels(module: DumpedModule, source: random.Random) -> tuple[tuple[str, ...], ...]:
    graph = MutableModule(require_start(module))
    members: set[MutableInstruction] = set()
    kernels = []
    computations = [
        [
            instruction
            for instruction in computation.instructions
            if instruction.opcode not in LEFT_OUT
        ]
        for computation in walk_control_flow(graph)
    ]
    operations = [computation for computation in computations if len(computation) > 1]
    for _ in range(source.randint(1, 4)):
        inside = source.choice(operations)
        kernel = [source.choice(inside)]
        for _ in range(source.randint(1, 6)):
            some = source.choice(kernel)
            near = [
                operand
                for operand in (*some.operands, *some.users)
                if operand.opcode not in LEFT_OUT
            ]
            if near:
                kernel.append(source.choice(near))
        kernel = list(dict.fromkeys(kernel))
        if source.random() < 0.8:  # else operations may be in several kernels
            kernel = [operation for operation in kernel if operation not in members]
        members.update(kernel)
        if len(kernel) > 1:
            kernels.append(tuple(operation.name for operation in kernel))
    return tuple(kernels)


def try_plans(module: DumpedModule, count: int, seed: int, python: str) -> Iterator[Finding]:
    source = random.Random(seed)
    count_tried = 0
    plans_taken: list[tuple[Plan, Injection, Changes]] = []
    while count_tried < count:
        changes = Changes(kernels=random_kernels(module, source))
        remainder = source.choice(list(Rest))
        if not changes.kernels:
            continue
        count_tried += 1
        try:
            plan = make_plan(module, changes, remainder)
        except UnusableInput as refusal:
            yield counted("refused", f"  refused: {refusal}")
            continue
        injection = inject(module, plan, python=python, limit_s=300)
        if injection.problem:
            line = f"  not taken: {plan.words}, {remainder}: {injection.problem}"
            yield counted("not taken", line)
        else:
            plans_taken.append((plan, injection, changes))
    baseline = inject(module, own_plan(module), python=python, limit_s=300)
    for start in range(0, len(plans_taken), AT_ONCE):
        some = plans_taken[start : start + AT_ONCE]
        injections = [injection for _, injection, _ in some]
        measured = measure(module, baseline, injections, seconds=0, python=python, limit_s=600)
        for (plan, _, changes), measurement in zip(some, measured, strict=True):
            verdict = str(measurement.numbers or "did not run")
            line = f"  {verdict}: {changes.kernels}, {plan.rest}: {measurement.problem}"
            is_wrong = measurement.numbers is Numbers.DIFFERENT
            yield (problem if is_wrong else counted)(verdict, line)


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", default=sys.executable)


def findings(options: Namespace) -> Iterator[Finding]:
    for dump in options.dumps:
        modules = [module for module in open_dump(dump).modules if module.backend == "cpu"]
        module = max(modules, key=lambda candidate: len(candidate.stages))
        yield note(dump.name)
        yield from try_plans(module, options.count, options.seed, options.python)
