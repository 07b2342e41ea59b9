"""Examines what a module costs, and whose it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.facts.module_analysis import Examined
from fusionscope.facts.result import ModuleRow, TimeEstimate
from fusionscope.facts.times import clock_for, sum_up
from fusionscope.history.kernels import Kernel, find_kernels
from fusionscope.history.loops import NOTHING_MORE, LoopFacts, read_loop_facts
from fusionscope.history.values import Numbering
from fusionscope.hlo import Module
from fusionscope.hlo.source_location import SourceLocation
from fusionscope.versions.context import read_target

_NO_WORD = re.compile(r"\W+")
_NAMELESS = frozenset({"lambda", "unnamed_function", "unnamed_wrapped_function", "unknown"})


def module_cost(module: DumpedModule, *, has_cost: bool) -> Examined:
    """Return whose the final module is, and if ``has_cost``, its cost. Raises ``UnusableInput`` if
    it cannot be read.
    """
    last = module.read(module.last)
    functions = _functions(last)
    has_names = any(instruction.op_name for instruction in last.walk())
    kernels: Sequence[Kernel] = ()
    if has_cost:
        kernels = find_kernels(Numbering().number(last), module.backend, _loops(module))
    time = _time(module, last, kernels)
    row = ModuleRow(
        name=module.name,
        number=module.number,
        device=device_name(module),
        launches=sum(kernel.launches for kernel in kernels),
        bytes_moved=sum(kernel.bytes_moved for kernel in kernels),
        time_us=time.microseconds if time is not None else None,
        refused_bytes=None,
        is_helper=_is_helper(module.name, functions),
    )
    return Examined(row, bool(functions), has_names)


def _loops(module: DumpedModule) -> LoopFacts:
    try:
        return replace(read_loop_facts(module), steps={})  # the row is kept for other steps
    except UnusableInput:  # reported where the module is explained
        return NOTHING_MORE


def device_name(module: DumpedModule) -> str:
    """Return what a module was compiled for in a few words; empty if the dump does not tell it."""
    from fusionscope.dump.device import describe  # CPUs do not need the table of cards

    with suppress(UnusableInput):  # reported where the module is explained
        if module.backend == "gpu" and module.device is not None:
            return describe(module.device).partition(" (")[0]
        if module.tpu is not None:
            return str(module.tpu)
    return (module.backend or "").upper()


def _time(module: DumpedModule, last: Module, kernels: Sequence[Kernel]) -> TimeEstimate | None:
    try:
        clock = clock_for(last, module.backend, read_target(module))
    except UnusableInput:  # reported where the module is explained
        return None
    return None if clock is None else sum_up(kernels, [clock.time(kernel) for kernel in kernels])


def _is_helper(name: str, functions: Iterable[str]) -> bool:
    """Return whether JAX compiled the module of this ``name`` for a function of its own, such as
    that behind ``jax.random.normal``. Its call stacks have these ``functions``.

    Call stacks omit JAX, so none of them contains a function of that name. If the dump has no call
    stacks, or the function has no name, the module counts as the user's.
    """
    function = _plain(name.partition("_")[2])
    if not function or function in _NAMELESS:
        return False
    in_stacks = {_plain(caller.rpartition(".")[2]) for caller in functions}
    return bool(in_stacks) and function not in in_stacks


def _functions(module: Module) -> set[str]:
    """Return the functions in the call stacks of a module."""
    in_stacks = chain.from_iterable(instruction.stack for instruction in module.walk())
    locations: Iterable[SourceLocation] = in_stacks
    if module.frames is not None:  # a table, which is there without any stack, too
        locations = module.frames.locations() if next(in_stacks, None) else ()
    return {location.function for location in locations if location.function}


def _plain(name: str) -> str:
    """Return the name of a function in the notation of module names."""
    return _NO_WORD.sub("_", name).strip("_")
