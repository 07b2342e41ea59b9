"""The versions that fusionscope knows: one line for each, the oldest first."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from itertools import chain

from fusionscope.errors import UnusableInput, quoted
from fusionscope.passes.rule import Rule
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.version import KnownCompiler, Version

_NAMES = (
    "xla_2023",
    "jaxlib_0_4_34",
    "jaxlib_0_4_35",
    "jaxlib_0_4_38",
    "jaxlib_0_5_3",
    "jaxlib_0_6_2",
    "jaxlib_0_7_2",
    "jaxlib_0_8",
    "jaxlib_0_9_0",
    "jaxlib_0_9_1",
    "jaxlib_0_9_2",
    "jaxlib_0_10_0",
    "jaxlib_0_10_1",
    "jaxlib_0_10_2",
    "jaxlib_0_11_0",
    "jaxlib_0_11_1",
    "jaxlib_0_11_2",
    "jaxlib_0_12",
)

VERSIONS: tuple[Version, ...] = tuple(
    import_module(f"fusionscope.versions.{name}").VERSION for name in _NAMES
)

# By name: the newest version first, and CPUs before GPUs.
COMPILERS: dict[str, KnownCompiler] = {
    each.name: each
    for backend in ("cpu", "gpu")
    for version in reversed(VERSIONS)
    for each in version.compilers
    if each.backend == backend
}


@cache
def load_compiler(name: str) -> Compiler:
    compiler: Compiler = import_module(COMPILERS[name].module).COMPILER
    return compiler


def compiler_named(name: str | None) -> Compiler | None:
    """Return the compiler of that name, or None if ``name`` is None. Raises ``UnusableInput``."""
    if name is None:
        return None
    if name not in COMPILERS:
        raise UnusableInput(f"unknown rule set {quoted(name)}; available: {', '.join(COMPILERS)}")
    return load_compiler(name)


def all_compilers() -> tuple[Compiler, ...]:
    return tuple(map(load_compiler, COMPILERS))


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return each rule once, in the form of the newest version that has it."""
    rules: dict[str, Rule] = {}
    for compiler in all_compilers():
        for rule in chain(*compiler.books):
            rules.setdefault(rule.id, rule)
    return tuple(rules.values())


@cache
def find_rule(id: str) -> Rule | None:
    """Return the rule with this ``id``, in the form of the newest version that has it, or None.

    This loads no more compilers than necessary.
    """
    matches = (load_compiler(name).find_rule(id) for name in COMPILERS)
    return next((rule for rule in matches if rule is not None), None)
