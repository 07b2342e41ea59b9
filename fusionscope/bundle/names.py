"""Names of instructions and computations that say nothing about the program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from fusionscope.hlo import Module
from fusionscope.hlo.opcodes import OPERAND_COUNT, VARIADIC

# What XLA makes names of, beside opcodes.
_WORDS = frozenset(
    """arg bitcast body branch clone computation cond constant custom entry fused fusion gemm input
    loop main op param parameter region remat root softmax sunk triton wrapped""".split()
) | frozenset(word for opcode in (*OPERAND_COUNT, *VARIADIC) for word in opcode.split("-"))
_BETWEEN = re.compile(r"[\d._\-]+")
NEW = "op_"  # before the opcode, so that no name of the dump is the same


def is_plain(name: str) -> bool:
    """Return whether only words of the compiler are in ``name``."""
    return not name.startswith(NEW) and _WORDS.issuperset(filter(None, _BETWEEN.split(name)))


def plain_names(modules: Iterable[Module]) -> dict[str, str]:
    """Return a name that is plain for each name in ``modules``, the same for equal ones. Others are
    called by their opcodes and numbered.
    """
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()

    def add(name: str, opcode: str) -> None:
        if name not in names:
            counts[opcode] += 1
            names[name] = name if is_plain(name) else f"{NEW}{opcode}.{counts[opcode]}"

    for module in modules:
        for computation in module.computations:
            add(computation.name, "computation")
            for statement in computation.body.written:
                add(statement.name, statement.opcode)
    return names
